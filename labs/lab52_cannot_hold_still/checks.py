"""What a policy that is validated during training must do. Runs in the grader's process, without the learner's code.

The reference for every evaluation is the base policy of the same seed, which has the same weights and no dropout. The
reference for training is the base policy with dropout on the feature, which draws the same random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    expect_frames_to_be_independent,
    expect_image_and_instruction_to_matter,
    listed,
    padded_batch,
    random_batch,
)
from labs.named_tensors import distance
from labs.vla.policy import Policy
from labs.vla.randomness import private_randomness

DROPOUT = 0.15
HEAD_SCALE = 30.0
"""Makes the actions of a new head as large as a trained one's, and larger."""
OPTIMIZER = {"lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": 0.01}
MAX_GRADIENT_NORM = 1.0
STEPS, EVERY = 7, 2
OUTCOME_STEPS = 100
EPISODES = 20
LOSS_BAR = 0.45
NOTHING = "nothing"
NESTED = ("vision.encoder.layers.0", "language_model.layers.1", "language_model.layers.0.mlp", "projector.2")
STARTS: dict[str, tuple[bool, tuple[str, ...]]] = {
    "training": (True, ()),
    "evaluation": (False, ()),
    "mixed": (True, ("vision", "language_model.norm")),
    "nested": (True, NESTED),
    "mostly evaluation": (False, ("head", "language_model.layers.0")),
}
"""The root's mode, and the paths of the modules that are in the other one."""


@check(
    kind="behaviour",
    title="Every module gets its mode back",
    property="Inside `evaluating`, every module must be in evaluation mode; afterwards each must be in the mode it was in before, even if the block raised or another one ran inside it. `act` and `validate` must change no mode either.",
    instrument="with debugkit.watch(policy, optimizer) as run: train(policy, optimizer, stream, validation, every=10)",
)
def test_modes_are_restored(submission: Submission, rng: Rng) -> None:
    batch = random_batch(rng, 1)
    situations = [
        (start, "evaluating", raises) for raises in (None, "OSError", "KeyboardInterrupt") for start in STARTS
    ]
    situations += [(start, function, None) for function in ("act", "validate", "act in a block") for start in STARTS]
    every: list[tuple[str, dict[str, Any], str | None]] = []
    for start, function, raises in situations:
        training, other = STARTS[start]
        how = ("" if function == "evaluating" else f", through {function}") + (f", raising {raises}" if raises else "")
        seen = submission.observe(
            "modes", training=training, other=list(other), through=function, batch=batch, raises=raises
        )
        expect(seen, f"modes from {start}{how}")  # recorded for the recognisers before any check fails
        every.append((f"from {described(start)}{how}", seen, raises))
    for said, seen, raises in every:
        inside = {module(path) for path, training in seen["inside"].items() if training}
        expect(listed(inside), f"what is in training mode during an evaluation ({said})").equals(NOTHING)
        expect(seen["raised"], f"the error that came out of the block ({said})").equals(raises)
        changed = {module(path) for path, training in seen["after"].items() if training != seen["before"][path]}
        expect(listed(changed), f"what is in another mode after an evaluation than before ({said})").equals(NOTHING)


@check(
    kind="behaviour",
    title="Repeated evaluations are identical",
    property="Called twice, act and validate must give bit-identical and correct numbers, whichever mode the policy was left in.",
    instrument="debugkit.check(policy, batch, select=['DK506'])",
)
def test_evaluation_is_repeatable(submission: Submission, rng: Rng) -> None:
    for training in (False, True):
        batches, seed = [with_padding(rng, 4) for _ in range(3)], rng.seed()
        seen = submission.observe("asked_twice", batches=batches, seed=seed, training=training)
        said = f"of a policy left in {'training' if training else 'evaluation'} mode"
        policy = Policy.from_base(seed=seed).eval()
        with torch.no_grad():
            policy.head.mlp[-1].weight.mul_(HEAD_SCALE)
            losses = [policy(**batch).loss for batch in batches]
        expect(torch.equal(*seen["chunks"]), f"whether two chunks {said} are identical").is_true()
        expect(seen["losses"][0] == seen["losses"][1], f"whether two validations {said} are identical").is_true()
        expect(seen["chunks"][0], f"the chunk {said}").close_to(policy.predict(batches[0]), rtol=1e-3, atol=1e-4)
        wanted = torch.stack(losses).mean()
        expect(seen["losses"][0], f"the loss of three validation batches {said}").close_to(float(wanted), rtol=1e-3)


@check(
    kind="behaviour",
    title="Dropout is active in every training step",
    property="Each training step must run in training mode and drop about 15 % of the feature, before and after validations, one of which fails.",
    instrument="with debugkit.watch(policy, optimizer) as run: train(policy, optimizer, stream, validation, every=10)",
)
def test_dropout_is_alive_in_training(submission: Submission, rng: Rng) -> None:
    stream = [random_batch(rng, 32) for _ in range(STEPS)]
    for fails_at in (1, 2):
        seen = submission.observe(
            "training_passes", stream=stream, validation=stream[:1], seed=rng.seed(), fails_at=fails_at
        )
        expect(len(seen["training"]), "the number of steps").equals(STEPS)
        expect(sum(seen["training"]), f"the number of steps in training mode, of {STEPS}").equals(STEPS)
        expect(seen["dropped"], "the fraction of the feature that each step dropped").between(
            DROPOUT - 0.05, DROPOUT + 0.05
        )


@check(
    kind="invariant",
    title="Training equals the reference",
    property="Losses, clipped gradients, validation losses and updates must be those of the base policy with dropout. A validation that raises OSError, at any of its batches, must be NaN in the log and keep no graph; any other error must stop the run. Training must end in evaluation mode.",
    instrument="lab run 52",
)
def test_training_equals_the_reference(submission: Submission, rng: Rng) -> None:
    stream, validation, seed = training_batches(rng), [random_batch(rng, 3), random_batch(rng, 3)], rng.seed()
    given = {"stream": stream, "validation": validation, "seed": seed, "fails_at": 2, "decoded": 1}
    seen = submission.observe("training_passes", **given)
    expect(seen["raised"], "what a failing validation raised in the run").equals(None)
    expect(seen["validated"], f"the steps after which was validated, with every={EVERY}").equals([2, 4, 6])
    failed = [math.isnan(loss) for loss in seen["validation"]]
    expect(failed, "which validations are NaN, of which the second fails after its first batch").equals(
        [False, True, False]
    )
    expect(seen["graphs"], "whether gradients were enabled in each batch of a validation").equals([False] * 5)
    policy, losses, norms, validated = reference(stream, validation, seed)
    expect(seen["losses"], "the losses of the log").close_to(losses, rtol=2e-3)
    numbers = [loss for loss in seen["validation"] if not math.isnan(loss)]
    expect(numbers, "the validation losses at steps 2 and 6").close_to([validated[0], validated[2]], rtol=2e-3)
    for step, (found, wanted) in enumerate(zip(seen["norms"], norms, strict=True), start=1):
        other = {name for name in wanted if not abs(found.get(name, 0.0) - wanted[name]) <= 2e-3 * wanted[name] + 1e-4}
        expect(listed(other), f"what has another gradient at step {step}").equals(NOTHING)
    start = Policy.from_base(seed=seed).state_dict()
    moved = {name: value - start[name] for name, value in policy.state_dict().items()}
    # In one norm: AdamW steps by the gradient's sign, and rounding alone decides it for an entry that is nearly zero.
    expect(
        distance(seen["moved"], moved),
        f"the weights' distance from the reference after {STEPS} steps, as a share of how far they moved,",
    ).at_most(0.02)
    training = {module(path) for path, mode in seen["after"].items() if mode}
    expect(listed(training), "what is in training mode after training").equals(NOTHING)
    stopped = submission.observe(
        "training_passes", **{**given, "stream": stream[:2], "fails_at": 1}, error="ArithmeticError"
    )
    expect(stopped["raised"], "what came out of a run whose validation raises ArithmeticError").equals(
        "ArithmeticError"
    )


@check(
    kind="invariant",
    title="The policy and its optimizer are built as before",
    property="`build_policy` must give the pretrained base with a head drawn from the seed, and `build_optimizer` AdamW over all its parameters, with the same settings, without changing a mode.",
    instrument="python -c 'from policy import *; print(build_optimizer(build_policy(0)))'",
)
def test_policy_is_built_as_before(submission: Submission, rng: Rng) -> None:
    seed = rng.seed()
    seen = submission.observe("settings", seed=seed, part=rng.choice(NESTED))
    wanted = Policy.from_base(seed=seed).state_dict()
    expect(listed(wanted.keys() ^ seen["weights"].keys()), "what a checkpoint lacks or has too many").equals(NOTHING)
    other = {name for name in wanted if not torch.equal(wanted[name], seen["weights"][name])}
    expect(listed(other), "what differs from the base, or from a head drawn from the seed").equals(NOTHING)
    expect(seen["optimizer"], "the optimizer").equals("AdamW")
    parameters = {name for name, _ in Policy().named_parameters()}
    held = {name for group in seen["groups"] for name in group["names"]}
    expect(listed(parameters ^ held), "what the optimizer lacks or has too many").equals(NOTHING)
    for name, value in OPTIMIZER.items():
        for group in seen["groups"]:
            expect(group[name], f"the optimizer's {name}").equals(value)
    expect(seen["changes_modes"], "whether `build_optimizer` changes a mode").is_false()


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="invariant",
    title="A frame does not depend on the rest of the batch",
    property="The action predicted for a frame must be the same whatever else is in the batch.",
    instrument="debugkit.check(policy, batch, select=['DK305'])",
)
def test_frames_are_independent(submission: Submission, rng: Rng) -> None:
    expect_frames_to_be_independent(submission, rng)


@check(
    kind="outcome",
    title="The same episodes have the same results",
    property=f"After training, {EPISODES} episodes run twice must end at bit-identical distances, and the last validation loss must be below {LOSS_BAR}.",
    instrument="lab run 52",
)
def test_same_episodes_end_alike(submission: Submission, seed: int) -> None:
    seen = submission.observe("trained_rollouts", seed=seed, episodes=EPISODES, steps=OUTCOME_STEPS)
    first, second = seen["distance"]
    expect(first, "the distances at the end").has_shape(EPISODES)
    expect(second, "the distances at the end of the second run").equals(first)
    expect(seen["validation"], "the last validation loss").below(LOSS_BAR)


MODES = "test_modes_are_restored/modes from "
PASSES = "test_dropout_is_alive_in_training/training_passes"


@wrong_fix(
    "no_dropout",
    says="Without dropout, the wrong mode has no visible effect. But the policy also loses its regularisation, and the modes are as wrong as before.",
)
def recognise_no_dropout(evidence: Mapping[str, Any]) -> bool:
    seen = evidence[PASSES]
    first = seen["training"][:1] == [True] and not bool(seen["dropped"].any())
    return first and inverted(evidence)


@wrong_fix(
    "eval_then_train",
    says="The mode is correct inside the block. Afterwards the policy is always in training mode, whatever it was before, and after an error it stays in evaluation mode.",
)
def recognise_eval_then_train(evidence: Mapping[str, Any]) -> bool:
    return (
        quiet_inside(evidence)
        and all(after(evidence, "evaluation").values())
        and not any(after(evidence, "training, raising OSError").values())
    )


@wrong_fix(
    "restored_unless_it_raises",
    says="Every module gets its mode back, unless the block raises: then the lines after `yield` never run. Put them where an exception cannot skip them.",
)
def recognise_no_finally(evidence: Mapping[str, Any]) -> bool:
    stays = not any(after(evidence, "training, raising OSError").values())
    return quiet_inside(evidence) and stays and all(restored(evidence, start) for start in STARTS)


@wrong_fix(
    "root_flag_only",
    says="The root's mode is restored and applied to all modules. A part that was kept in evaluation mode during training is in training mode after the first validation.",
)
def recognise_root_flag(evidence: Mapping[str, Any]) -> bool:
    return (
        quiet_inside(evidence)
        and restored(evidence, "training, raising OSError")
        and all(set(after(evidence, start).values()) == {STARTS[start][0]} for start in STARTS)
    )


@wrong_fix(
    "no_grad_instead",
    says="`no_grad` keeps no graph, but dropout still drops: it depends on its module's mode, not on whether gradients are enabled.",
)
def recognise_no_grad(evidence: Mapping[str, Any]) -> bool:
    seen = [evidence[f"{MODES}{start}"] for start in STARTS]
    return all(one["gradients"] is False and one["inside"] == one["before"] == one["after"] for one in seen)


@wrong_fix(
    "attribute_of_the_root",
    says="`policy.training = False` changes only the root's flag. Dropout reads its own. `policy.eval()` sets the flag of every module.",
)
def recognise_attribute(evidence: Mapping[str, Any]) -> bool:
    seen = [evidence[f"{MODES}{start}"] for start in STARTS]
    return all(one["inside"] == {**one["before"], "": False} for one in seen)


@wrong_fix(
    "never_back",
    says="The robot is fine now. Training is not: after the first validation it continues in evaluation mode, without dropout.",
)
def recognise_never_back(evidence: Mapping[str, Any]) -> bool:
    return quiet_inside(evidence) and not any(any(after(evidence, start).values()) for start in STARTS)


def quiet_inside(evidence: Mapping[str, Any]) -> bool:
    """Whether no module was in training mode inside a block that does not raise."""
    return not any(any(evidence[f"{MODES}{start}"]["inside"].values()) for start in STARTS)


def inverted(evidence: Mapping[str, Any]) -> bool:
    """Whether a block toggles the mode: evaluation from training, and training from evaluation."""
    from_training, from_evaluation = (evidence[f"{MODES}{start}"]["inside"] for start in ("training", "evaluation"))
    return not any(from_training.values()) and all(from_evaluation.values())


def after(evidence: Mapping[str, Any], name: str) -> dict[str, bool]:
    """Each module's mode after a block."""
    return dict(evidence[f"{MODES}{name}"]["after"])


def restored(evidence: Mapping[str, Any], name: str) -> bool:
    """Whether every module was in the same mode afterwards as before."""
    return bool(after(evidence, name) == evidence[f"{MODES}{name}"]["before"])


def module(path: str) -> str:
    """A module's path, or a name for the policy itself."""
    return path or "the policy itself"


def described(start: str) -> str:
    """In which mode the modules are, for a message."""
    training, other = STARTS[start]
    mode, rest = ("training", "evaluation") if training else ("evaluation", "training")
    return f"{mode} mode" + (f" with {' and '.join(other)} in {rest} mode" if other else "")


def with_padding(rng: Rng, size: int) -> dict[str, Tensor]:
    """A batch in which steps of a chunk and words of an instruction may be padding."""
    batch = padded_batch(rng, size)
    words = batch["attention_mask"].shape[1]
    length = rng.integers(2, words, size)
    return {**batch, "attention_mask": (torch.arange(words)[None] < length[:, None]).long()}


def training_batches(rng: Rng) -> list[dict[str, Tensor]]:
    """Batches with padding. In the first and the last ones all errors have the same sign: their gradients are clipped."""
    batches = [with_padding(rng, rng.integer(3, 6)) for _ in range(STEPS)]
    for batch in (*batches[:2], *batches[-2:]):
        batch["action"] = torch.tensor([0.3, 0.3, 3.0]).expand_as(batch["action"]).clone()
    return batches


class Reference(Policy):
    """The base policy with dropout on the feature."""

    def encode(self, *observation: Tensor, **named: Tensor) -> Tensor:
        """The feature (B, D), with some values dropped in training mode."""
        return nn.functional.dropout(super().encode(*observation, **named), DROPOUT, self.training)


def reference(
    stream: Sequence[Mapping[str, Tensor]], validation: Sequence[Mapping[str, Tensor]], seed: int
) -> tuple[Policy, list[float], list[dict[str, float]], list[float]]:
    """The trained policy, its losses, the norm of each gradient after clipping at each step, the validation losses."""
    policy = Reference.from_base(seed=seed)
    optimizer = torch.optim.AdamW(policy.parameters(), **OPTIMIZER)
    losses, norms, validated = [], [], []
    with private_randomness(seed):
        for step, batch in enumerate(stream, start=1):
            loss = policy.train()(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
            norms.append({name: float(p.grad.norm()) for name, p in policy.named_parameters()})
            optimizer.step()
            losses.append(float(loss.detach()))
            if step % EVERY == 0:
                with torch.no_grad():
                    policy.eval()
                    validated.append(float(torch.stack([policy(**batch).loss for batch in validation]).mean()))
    return policy, losses, norms, validated
