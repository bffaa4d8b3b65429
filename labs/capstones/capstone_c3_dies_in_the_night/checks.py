"""What must hold for the nightly job. Runs in the grader's process, without the learner's files.

What is alive is counted: autograd nodes, tensors, the bytes of storages, hooks. The memory of the process and the time
decide nothing. Losses, weights and validations are compared with a reference of the job, written here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect
from labs.invariants import padded_batch, random_batch
from labs.vla.dataset import batches, collate, demonstrations
from labs.vla.policy import OBSERVATION_KEYS, Policy
from labs.vla.randomness import private_randomness

Batch = dict[str, Tensor]
SETTINGS = {
    "seed": 3,
    "frames": 240,
    "held_out": 48,
    "batch_size": 8,
    "replayed": 2,
    "learning_rate": 1e-3,
    "warm_up": 20,
    "dropout": 0.1,
    "steps": 160,
    "validate_every": 40,
    "save_every": 100,
    "watched": ["vision", "projector", "language_model", "head"],
}
HELD_OUT_SEED = 930_000
MAX_GRADIENT_NORM = 1.0
NEVER = 1_000_000


@check(
    kind="behaviour",
    title="The same is alive after every step",
    property="In a run without validations, the same autograd nodes, tensors and bytes of tensors must be alive after each step from the third on, in the first epoch and in later ones.",
    instrument="python -c \"import gc, tempfile, torch, train, yaml; from pathlib import Path; c = yaml.safe_load(open('config.yaml')) | dict(frames=16, held_out=8, batch_size=4, validate_every=99, save_every=99); train.train(c | dict(steps=9), Path(tempfile.mkdtemp()), lambda *_: print(sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())))\"",
)
def test_the_same_is_alive_after_every_step(submission: Submission, rng: Rng) -> None:
    for words, frames, steps in (("within an epoch", 60, 9), ("over several epochs", 8, 8)):
        config = small(rng, frames=frames, steps=steps, batch_size=3, replayed=1, validate_every=NEVER)
        counts = submission.observe("alive", config=config | {"save_every": NEVER})
        for what, after in counts.items():
            expect(len(after), "the number of steps that were observed").equals(steps)
            for step in range(steps, 3, -1):
                named = f"the number of {what} after step {step}, compared with step 3, {words},"
                expect(after[step - 1], named).equals(after[2])


@check(
    kind="behaviour",
    title="What runs after a validation keeps nothing",
    property="After two validations, and after each training pass that follows them, as many tensors and as many bytes of tensors must be alive as before the validations.",
    instrument="python -c \"import gc, tempfile, torch, train, yaml; from pathlib import Path; c = yaml.safe_load(open('config.yaml')) | dict(frames=16, held_out=8, batch_size=4, validate_every=99, save_every=99); train.train(c | dict(steps=9, validate_every=4), Path(tempfile.mkdtemp()), lambda *_: print(sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())))\"",
)
def test_later_passes_keep_nothing(submission: Submission, rng: Rng) -> None:
    seen = left_by_validation(submission, rng)
    before, *later = seen["alive"]
    for (tensors, size), when in zip(later, ("two validations", *PASSES), strict=True):
        expect(tensors, f"the number of tensors alive after {when}").equals(before[0])
        expect(size, f"the bytes of tensors alive after {when}").equals(before[1])


PASSES = ("the first pass that follows", "the second pass", "the third pass")


@check(
    kind="behaviour",
    title="A policy has the hooks that it had before the validation",
    property="A validation, also one that raises, must leave every module with as many hooks as before, those of other code included.",
    instrument="python -c \"import train; p = train.build_policy(0, 0.1); train.validate(p, train.held_out_batches(8, 4), ['head']); print({n: len(m._forward_hooks) for n, m in p.named_modules() if m._forward_hooks})\"",
)
def test_hooks_are_as_before(submission: Submission, rng: Rng) -> None:
    before, *later = left_by_validation(submission, rng)["hooks"]
    for found, when in zip(later, ("one validation", "two validations", "a validation that raised"), strict=True):
        more = {name: count - before.get(name, 0) for name, count in found.items() if count > before.get(name, 0)}
        gone = sorted(name for name, count in before.items() if found.get(name, 0) < count)
        expect(sum(more.values()), f"the number of hooks that were added and are there after {when}").equals(0)
        expect(len(gone), f"the number of modules whose own hooks are gone after {when}").equals(0)


@check(
    kind="behaviour",
    title="A run that was interrupted ends as one that was not",
    property="A job that is ended after any step and started again in the same folder must continue from its newest checkpoint, with the same losses, validations and weights as a job that was never ended.",
    instrument="python -c \"import tempfile, train, yaml; from pathlib import Path; c = yaml.safe_load(open('config.yaml')) | dict(frames=16, held_out=8, batch_size=4, validate_every=99, save_every=99); c['save_every'] = 2; a, b = (Path(tempfile.mkdtemp()) for _ in 'ab'); whole = train.train(c | dict(steps=12), a); train.train(c | dict(steps=8), b); print(*((s, loss, whole.losses[s]) for s, loss in train.train(c | dict(steps=12), b).losses.items()), sep=chr(10))\"",
)
def test_interrupted_run_ends_as_an_uninterrupted_one(submission: Submission, rng: Rng) -> None:
    # Whatever is drawn: step 3 is in the first epoch, and after step 10 a later epoch has begun and is not over.
    sizes = {"frames": rng.integer(14, 16), "batch_size": 4, "replayed": rng.integer(1, 3)}
    config = small(rng, **sizes, steps=13, validate_every=13, save_every=2)
    whole = submission.observe("run", config=config)
    for words, ended in (
        ("in a later epoch", [rng.integer(10, 12)]),
        ("three times", [3, rng.integer(6, 10), 11]),
    ):
        found = submission.observe("run", config=config, ended_after=ended)
        expect(found["resumed_at"], f"the step that a job that was ended {words} resumed at").equals(ended[-1] // 2 * 2)
        expect(found["steps"], f"the steps of a job that was ended {words}").equals(whole["steps"])
        expect(torch.tensor(found["losses"]), f"the losses of a job that was ended {words},").close_to(
            torch.tensor(whole["losses"]), rtol=1e-3
        )
        expect_weights(found["weights"], whole["weights"], f"a job that was ended {words}")
        expect(found["validations"][13][0], f"the last validation's loss of a job that was ended {words}").close_to(
            whole["validations"][13][0], rtol=1e-3
        )


@check(
    kind="behaviour",
    title="A run is that of its settings",
    property="Without interruption, losses, validations and weights must be those of the job that the docstrings describe: fresh and replayed frames, scores in evaluation mode, warm-up, dropout, clipped gradients.",
    instrument="python train.py",
)
def test_run_is_that_of_its_settings(submission: Submission, rng: Rng) -> None:
    for replayed in (0, rng.integer(1, 3)):
        config = small(rng, frames=rng.integer(14, 20), batch_size=5, replayed=replayed, steps=10)
        config |= {"validate_every": 4, "save_every": 6, "watched": ["projector", "head"]}
        found, wanted = submission.observe("run", config=config), reference_run(config)
        words = f"with {replayed} replayed frames"
        expect(torch.tensor(found["losses"]), f"the losses {words}").close_to(torch.tensor(wanted.losses), rtol=1e-3)
        expect(sorted(found["validations"]), f"the steps with a validation {words}").equals(sorted(wanted.validations))
        for step, loss in wanted.validations.items():
            expect(found["validations"][step][0], f"the validation's loss after step {step} {words}").close_to(
                loss, rtol=1e-3
            )
        expect_weights(found["weights"], wanted.weights, f"an uninterrupted run {words}")
        expect(found["files"], f"the files of a run {words}").equals(["step_000006.pt"])
        expect(found["random"], f"whether the caller's random state is as before, {words},").is_true()
        expect(found["training"], f"whether the policy is in training mode at the end, {words},").is_false()


@check(
    kind="behaviour",
    title="A validation reports loss and spreads, and changes nothing",
    property="Loss and every layer's spread must be over all held-out frames, in evaluation mode. Modes, weights, random state and gradients must be as before.",
    instrument="python -c \"import train; p = train.build_policy(0, 0.1); print(train.validate(p, train.held_out_batches(8, 4), ['head']), p.training)\"",
)
def test_validation_reports_its_numbers(submission: Submission, rng: Rng) -> None:
    held_out, seed = [padded_batch(rng, size) for size in (3, 4, 2)], rng.seed() % 1000
    watched = ["projector", "language_model", "head", "proprioception"]
    found = submission.observe("validation", batches=held_out, watched=watched, seed=seed)
    policy = Policy.from_base(seed=seed).eval()
    loss, spreads = reference_validation(policy, held_out, watched)
    expect(found["loss"], "the loss").close_to(loss, rtol=1e-4)
    expect(sorted(found["spread"]), "the layers with a spread").equals(sorted(spreads))
    for name, value in spreads.items():
        expect(found["spread"][name], f"the spread of {name}").close_to(value, rtol=1e-3, atol=1e-6)
    for what in ("modes", "random", "weights", "gradients"):
        expect(found[what], KEPT[what]).is_true()


KEPT = {
    "modes": "whether the modes are as before",
    "random": "whether the random state is as before",
    "weights": "whether the weights are as before",
    "gradients": "whether gradients are recorded as before",
}


@check(
    kind="invariant",
    title="Checkpoints of earlier releases can be continued",
    property="A checkpoint whose states have the keys that they have today must be continued.",
    instrument="python -c \"import tempfile, torch, train, yaml; from pathlib import Path; c = yaml.safe_load(open('config.yaml')) | dict(frames=16, held_out=8, batch_size=4, validate_every=99, save_every=99); f = Path(tempfile.mkdtemp()); train.train(c | dict(steps=2, save_every=2), f); print(torch.load(f / 'step_000002.pt')['sampler'].keys())\"",
)
def test_earlier_checkpoints_continue(submission: Submission, rng: Rng) -> None:
    config = small(rng, frames=16, batch_size=4, replayed=1, steps=4, validate_every=NEVER, save_every=2)
    found = submission.observe("continued", config=config, ended_after=2)
    expect(found["raised"], "the error of a run that continues an earlier checkpoint").equals(None)
    expect(torch.tensor(found["losses"]), "the losses after a checkpoint of the first epoch").close_to(
        torch.tensor(reference_run(config).losses[2:]), rtol=1e-3
    )


@check(
    kind="invariant",
    title="The job has the settings that it had",
    property="`config.yaml` must have the same keys and values as before.",
    instrument="cat config.yaml",
)
def test_settings_are_as_before(submission: Submission) -> None:
    found = submission.observe("settings")
    expect(sorted(found), "the settings").equals(sorted(SETTINGS))
    for name, value in SETTINGS.items():
        expect(found[name], f"the setting {name}").equals(value)


def left_by_validation(submission: Submission, rng: Rng) -> dict[str, Any]:
    """What two validations of three batches leave."""
    held_out = [random_batch(rng, 2) for _ in range(3)]
    return submission.observe(
        "left_by_validation", batches=held_out, watched=SETTINGS["watched"], seed=rng.seed() % 1000
    )


def small(rng: Rng, **own: Any) -> dict[str, Any]:
    """The settings of a run that takes less than a second."""
    drawn = {"seed": rng.integer(0, 10_000), "learning_rate": rng.integer(1, 4) / 1000, "warm_up": rng.integer(3, 8)}
    return SETTINGS | {"held_out": 6, "dropout": 0.2} | drawn | own


@dataclass
class ReferenceRun:
    """The losses and the loss of each validation, and the weights at the end."""

    losses: list[float] = field(default_factory=list)
    validations: dict[int, float] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)


def reference_run(config: dict[str, Any]) -> ReferenceRun:
    """The job as its docstrings describe it, uninterrupted."""
    run, seed = ReferenceRun(), config["seed"]
    frames = demonstrations(config["frames"], seed=seed)
    count, size = config["held_out"], config["batch_size"]
    of_others = demonstrations(count, seed=HELD_OUT_SEED)
    held_out = list(batches(of_others, size, steps=count // size, seed=HELD_OUT_SEED))
    policy = Policy.from_base(seed=seed).train()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config["learning_rate"])
    errors, order, epoch = np.full(config["frames"], -1.0, np.float32), np.empty(0, np.int64), -1
    with private_randomness(seed):
        for step in range(1, config["steps"] + 1):
            replayed = config["replayed"] if (errors >= 0).sum() >= config["replayed"] else 0
            if len(order) < size - replayed:
                epoch += 1
                order = np.random.default_rng([seed, epoch]).permutation(config["frames"])
            fresh, order = order[: size - replayed], order[size - replayed :]
            indices = np.concatenate([fresh, np.argsort(-errors, kind="stable")[:replayed]])
            batch = collate(frames, indices)
            optimizer.param_groups[0]["lr"] = config["learning_rate"] * min(1.0, step / config["warm_up"])
            optimizer.zero_grad()
            feature = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
            loss = policy.loss(F.dropout(feature, config["dropout"]), batch["action"], batch["action_is_pad"])
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
            run.losses.append(loss.item())
            errors[indices] = frame_errors(policy, batch).numpy()
            if step % config["validate_every"] == 0:
                run.validations[step] = float(torch.cat([frame_errors(policy, one) for one in held_out]).mean())
    run.weights = {name: value.detach() for name, value in policy.named_parameters()}
    return run


@torch.no_grad()
def frame_errors(policy: Policy, batch: Batch) -> Tensor:
    """The loss of each frame by itself, (B,); the healthy policy has no dropout."""
    feature = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
    rows = [slice(row, row + 1) for row in range(len(feature))]
    return torch.stack([policy.loss(feature[row], batch["action"][row], batch["action_is_pad"][row]) for row in rows])


@torch.no_grad()
def reference_validation(policy: Policy, held_out: list[Batch], watched: list[str]) -> tuple[float, dict[str, float]]:
    """Loss and spreads, from one pass over all frames."""
    batch = {name: torch.cat([one[name] for one in held_out]) for name in held_out[0]}
    outputs: dict[str, Tensor] = {}
    for path, module in policy.named_modules():
        if isinstance(module, nn.Linear) and path.split(".")[0] in watched:
            module.register_forward_hook(lambda _m, _i, output, path=path: outputs.update({path: output}))
    policy.predict(batch)
    spreads = {
        path: float(output.reshape(len(output), -1, output.shape[-1]).mean(dim=1).std(dim=0, correction=0).mean())
        for path, output in outputs.items()
    }
    return float(frame_errors(policy, batch).mean()), spreads


def expect_weights(found: dict[str, Tensor], wanted: dict[str, Tensor], of: str) -> None:
    """The same parameters with the same values, up to rounding."""
    expect(sorted(found), f"the parameters of {of}").equals(sorted(wanted))
    far = max(float((found[name] - wanted[name]).abs().max()) for name in wanted)
    expect(far, f"the largest difference of a weight of {of} from what it should be").at_most(2e-4)
