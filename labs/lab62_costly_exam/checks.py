"""What must hold for a validation. Runs in the grader's process, without the learner's code.

The reference is the healthy policy of the same seed: its prediction for the held-out frames, and a training of it here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import (
    HORIZON,
    expect_image_and_instruction_to_matter,
    listed,
    padded_batch,
    random_batch,
    random_padding,
)
from labs.reference_training import train_step, with_dropout
from labs.vla.dataset import batches, demonstrations
from labs.vla.normalization import TABLETOP_STD
from labs.vla.policy import Policy
from labs.vla.randomness import private_randomness

Batch = dict[str, Tensor]
VALIDATIONS = 4
VALIDATE_EVERY = 10
HELD_OUT = 64
LONG = 1040
"""Steps of a training that has more validations than a window of recent ones."""
LEARNT = 0.9
"""The last validation's loss must be below this fraction of the first one's."""
PARTS = ("vision.encoder.layers.0", "projector.2", "language_model.layers.1", "head.mlp.0")
"""Modules inside the policy's parts."""


@check(
    kind="behaviour",
    title="Validation records nothing for a backward pass",
    property="During validation nothing must be kept for a backward pass, and the result must not require a gradient.",
    instrument="debugkit.watch(policy, optimizer, select=['DK603'])",
)
def test_validation_records_no_graph(submission: Submission, rng: Rng) -> None:
    sizes = [rng.integer(2, 5), rng.integer(5, 8), 1]
    batch, seed = padded_batch(rng, sum(sizes)), rng.seed()
    largest = {name: values[sizes[0] : sizes[0] + sizes[1]] for name, values in batch.items()}
    training = submission.observe("training_bytes", batch=largest, seed=seed)
    for mode, modes in (("training", {"": True, "vision": False}), ("evaluation", {"": False})):
        seen = observe_validation(submission, batch, sizes, seed, modes)
        facts = {name: seen[name] for name in ("most_bytes", "left_bytes", "requires_grad")}
        expect({**facts, "step": training, "changed": changed_names(seen)}, "kept")  # for the recognisers
        where = f"by validating a policy in {mode} mode"
        expect(seen["most_bytes"], f"the number of bytes kept for a backward pass {where}").equals(0)
        expect(seen["left_bytes"], f"the number of bytes left behind {where}").equals(0)
        expect(", ".join(seen["requires_grad"]) or "nothing", f"what still requires a gradient, made {where},").equals(
            "nothing"
        )


@check(
    kind="behaviour",
    title="Loss and error cover all held-out frames",
    property="Loss and error must be computed over every held-out frame, in evaluation mode, without padded steps.",
    instrument="lab run 62",
)
def test_numbers_equal_the_reference(submission: Submission, rng: Rng) -> None:
    for sizes, longest in (([rng.integer(2, 6), rng.integer(2, 6), 1], HORIZON), ([rng.integer(5, 9)], 3), ([1], 2)):
        batch, seed = held_out_batch(rng, sum(sizes), longest), rng.seed()
        seen = observe_validation(submission, batch, sizes, seed, {"": True, "vision": False})
        wanted = reference(Policy.from_base(seed=seed), batch)
        expect_validation(seen, wanted, f"for batches of {', '.join(map(str, sizes))}")


@check(
    kind="invariant",
    title="The policy's state is restored",
    property="After validation every module's mode, every parameter, its gradient and its requires_grad, and torch's gradient setting must be what they were before.",
    instrument="debugkit.check(policy, batch, select=['DK505', 'DK113'])",
)
def test_policy_is_handed_back(submission: Submission, rng: Rng) -> None:
    sizes = [rng.integer(2, 5), rng.integer(2, 5)]
    batch = padded_batch(rng, sum(sizes))
    situations: dict[str, tuple[dict[str, bool], list[str], bool]] = {
        "in training mode except for one part": ({"": True, rng.choice(PARTS): False}, [], True),
        "with a frozen part": ({"": True, rng.choice(PARTS): False}, [rng.choice(PARTS)], True),
        "in evaluation mode except for one part": ({"": False, rng.choice(PARTS): True}, [], True),
        "by a caller under no_grad": ({"": True}, ["vision"], False),
    }
    seen = {
        name: observe_validation(submission, batch, sizes, rng.seed(), *situation)
        for name, situation in situations.items()
    }
    expect({name: {at: one[at] for at in ("before", "after")} for name, one in seen.items()}, "states")
    for name, one in seen.items():
        expect(one["after"]["enabled"], f"torch.is_grad_enabled() after validating a policy {name}").equals(
            one["before"]["enabled"]
        )
        for what, names in changed_names(one).items():
            expect(listed(names), f"what validating a policy {name} changed in {what}").equals("nothing")


@check(
    kind="invariant",
    title="Training is validated every ten steps and at the end",
    property="Every training step must have the loss that it has without validations. Each validation must be kept, with the numbers of the policy as it was then, however long the training is.",
    instrument="lab run 62",
)
def test_training_equals_the_reference(submission: Submission, rng: Rng) -> None:
    for steps in (rng.integer(21, 25), VALIDATE_EVERY):
        batch_size, seed = rng.integer(2, 5), rng.integer(0, 10_000)
        seen = submission.observe("fine_tuned", seed=seed, steps=steps, batch_size=batch_size)
        wanted = reference_training(seed, steps, batch_size)
        where = f"of a training of {steps} steps"
        expect(len(seen["losses"]), f"the number of losses {where}").equals(steps)
        for step, (loss, correct) in enumerate(zip(seen["losses"], wanted.losses, strict=True), start=1):
            expect(loss, f"the loss of step {step} {where}").close_to(correct, rtol=1e-5, atol=1e-6)
        expect(len(seen["validations"]), f"the number of validations {where}").equals(len(wanted.validations))
        for number, (result, correct) in enumerate(zip(seen["validations"], wanted.validations, strict=True), start=1):
            expect_validation(result, correct, f"in validation {number} {where}")
    frames, numbers = rng.integer(2, 5), torch.arange(1.0, LONG + 1)
    seen = submission.observe("long_run", batch=padded_batch(rng, frames), steps=LONG)
    expect(seen["frames"], f"the frames of each validation of a training of {LONG} steps").equals(
        [frames] * (LONG // VALIDATE_EVERY)
    )
    for name, words, wanted in (
        ("losses", "the losses of all steps", numbers),
        ("validation_losses", "the losses of all validations", numbers[VALIDATE_EVERY - 1 :: VALIDATE_EVERY]),
        ("errors", "the mean errors of all validations", numbers[VALIDATE_EVERY - 1 :: VALIDATE_EVERY]),
    ):
        expect(seen[name], f"{words} of a training of {LONG} steps").close_to(wanted, rtol=1e-3, atol=1e-3)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the predicted actions.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    expect_image_and_instruction_to_matter(submission, rng)


@check(
    kind="outcome",
    title="Training with validations learns, and its memory use does not grow",
    property=f"Over 40 steps there must be {VALIDATIONS} validations of {HELD_OUT} frames. None may leave anything behind in memory, and the validation loss must fall.",
    instrument="lab run 62",
)
def test_training_learns_and_stays_light(submission: Submission, seed: int) -> None:
    run = submission.observe("trained_run", seed=seed)
    expect(run["left_bytes"], "the bytes left behind by each validation").equals([0] * VALIDATIONS)
    expect(run["frames"], "the frames of each validation").equals([HELD_OUT] * VALIDATIONS)
    expect(run["training"], "the policy is in training mode afterwards,").is_true()
    first, *_, last = run["validation_losses"]
    expect(last / first, "the last validation loss as a fraction of the first").below(LEARNT)


KEPT = "test_validation_records_no_graph/kept"
STATES = "test_policy_is_handed_back/states"


@wrong_fix(
    "detached_outputs",
    says="Nothing is left behind any more. But each batch still records its graph before it is discarded: a validation still needs as much memory as a training step.",
)
def recognise_detached(evidence: Mapping[str, Any]) -> bool:
    kept = evidence[KEPT]
    one_batch = 0.5 < kept["most_bytes"] / kept["step"] < 1.3
    return one_batch and kept["left_bytes"] == 0 and not any(kept["changed"].values())


@wrong_fix(
    "loss_as_a_number",
    says="The loss no longer refers to its graph. The errors refer to the same graph, so none of it is freed.",
)
def recognise_half(evidence: Mapping[str, Any]) -> bool:
    kept = evidence[KEPT]
    refers = [name for name in kept["requires_grad"] if name != "along_the_chunk"]
    return kept["left_bytes"] > kept["step"] and refers == ["error"]


@wrong_fix(
    "frozen_for_good",
    says="No graph is recorded, because no parameter requires a gradient, and none will in the next training step either. Switch off the recording, not the parameters.",
)
def recognise_frozen(evidence: Mapping[str, Any]) -> bool:
    return evidence[KEPT]["most_bytes"] == 0 and not any(
        any(state["after"]["requires_grad"].values()) for state in evidence[STATES].values()
    )


@wrong_fix(
    "everything_unfrozen",
    says="The parameters require a gradient again, and so do those that were frozen before. Restore what each parameter had.",
)
def recognise_unfrozen(evidence: Mapping[str, Any]) -> bool:
    return evidence[KEPT]["most_bytes"] == 0 and all(
        all(state["after"]["requires_grad"].values()) for state in evidence[STATES].values()
    )


@wrong_fix(
    "gradients_off_for_good",
    says="This switches gradients off and never on again: the next training loss has no graph, and its backward pass fails.",
)
def recognise_off(evidence: Mapping[str, Any]) -> bool:
    return not any(state["after"]["enabled"] for state in evidence[STATES].values())


@wrong_fix(
    "everything_trains_after",
    says="No graph is recorded, but the policy is changed: every module is put into training mode, including those that were in evaluation mode on purpose.",
)
def recognise_modes(evidence: Mapping[str, Any]) -> bool:
    return evidence[KEPT]["most_bytes"] == 0 and all(
        all(state["after"]["modes"].values()) for state in evidence[STATES].values()
    )


def observe_validation(
    submission: Submission,
    batch: Batch,
    sizes: list[int],
    seed: int,
    modes: Mapping[str, bool],
    frozen: Sequence[str] = (),
    gradients: bool = True,
) -> Any:
    """What the probe `validation` returns."""
    return submission.observe(
        "validation",
        batch=batch,
        sizes=sizes,
        seed=seed,
        modes=dict(modes),
        frozen=list(frozen),
        gradients=gradients,
    )


def changed_names(seen: Mapping[str, Any]) -> dict[str, list[str]]:
    """By kind of state, the modules and tensors that differ between before and after."""
    kinds = {
        "the modules' modes": "modes",
        "the parameters' requires_grad": "requires_grad",
        "the parameters and buffers": "values",
        "the gradients": "gradients",
    }
    return {what: different(seen["before"][kind], seen["after"][kind]) for what, kind in kinds.items()}


def different(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The names whose values differ, or that only one of the two has."""
    return [
        name or "the policy"
        for name in before | after
        if name not in before
        or name not in after
        or not torch.equal(*map(torch.as_tensor, (before[name], after[name])))
    ]


def expect_validation(seen: Mapping[str, Any], wanted: Mapping[str, Tensor], where: str) -> None:
    """The result must have the frames, errors and loss of the reference."""
    expect(seen["valid"], f"`valid` {where}").equals(wanted["valid"])
    for name, words in (
        ("error", "the error of each frame and step"),
        ("loss", "the loss"),
        ("along_the_chunk", "the error along the chunk"),
    ):
        expect(seen[name], f"{words} {where}").close_to(wanted[name], rtol=1e-3, atol=1e-5)


def held_out_batch(rng: Rng, size: int, longest: int) -> Batch:
    """Frames whose steps are padding after the first few: the first frame has `longest` steps, and no frame has more.

    Targets are metres away, farther than any on the table.
    """
    batch = random_batch(rng, size)
    batch["action"][..., :2] *= 40
    is_pad = random_padding(rng, size, longest=longest)
    is_pad[0] = torch.arange(HORIZON) >= longest
    return {**batch, "action_is_pad": is_pad}


def reference(policy: Policy, batch: Batch) -> dict[str, Tensor]:
    """The result of validating the policy on all frames of the batch."""
    off = policy.eval().predict(batch).double() - batch["action"]  # (N, H, 3), environment units
    valid = ~batch["action_is_pad"]
    scaled = off / torch.tensor(TABLETOP_STD, dtype=torch.float64)
    loss = F.smooth_l1_loss(scaled, torch.zeros_like(scaled), beta=0.1, reduction="none").mean(dim=-1)
    error = off[..., :2].norm(dim=-1)
    along = (error * valid).sum(dim=0) / valid.sum(dim=0)
    return {"loss": loss[valid].mean(), "error": error, "valid": valid, "along_the_chunk": along}


@dataclass
class Training:
    """The losses and validations of a training."""

    losses: list[float] = field(default_factory=list)
    validations: list[dict[str, Tensor]] = field(default_factory=list)


def reference_training(seed: int, steps: int, batch_size: int) -> Training:
    """The healthy policy's training on the frames that the probe `fine_tuned` uses."""
    policy = with_dropout(Policy.from_base(seed=seed))
    policy.projector.requires_grad_(False)
    frames = demonstrations(steps * batch_size, seed)
    pieces = list(batches(demonstrations(2 * batch_size, seed + 1), batch_size, 2, seed))
    held_out = {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    found = Training()
    with private_randomness(seed):
        for step, batch in enumerate(batches(frames, batch_size, steps, seed), start=1):
            found.losses.append(train_step(policy, optimizer, batch))
            if step % VALIDATE_EVERY == 0 or step == steps:
                found.validations.append(reference(policy, held_out))
    return found
