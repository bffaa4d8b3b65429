"""What must hold of a training step in mixed precision. Runs in the grader's process; judges, and never sees the code.

The reference is plain float32: from the gradient of the same loss, neither scaled nor clipped, the clipped step is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, random_batch

MAX_NORM, LEARNING_RATE = 0.3, 0.1
ROUNDING = 0.03
"""What float16 may add to a step, relative to its length."""
SMALL_ROUNDING = 0.1
"""The same where the gradient is so small that float32 weights round their updates too."""
LOSS_BAR = 0.4


@check(
    kind="behaviour",
    title="A step is the step of float32",
    property="At any loss scale the weights must move by the learning rate times the float32 gradient, shortened to the maximum norm where it is longer.",
    instrument="debugkit.watch(policy, optimizer)",
)
def test_step_is_the_step_of_float32(submission: Submission, rng: Rng) -> None:
    for weight, length in ((0.1, "short"), (1.0, "long")):  # of which no clip may touch the first
        for scale in (2.0 ** rng.integer(8, 11), 2.0 ** rng.integer(13, 16)):
            seen = submission.observe("one_step", batch=far_off(rng), seed=rng.seed(), scale=scale, loss_weight=weight)
            expect(explain(seen, scale), f"what was done to a {length} gradient")
            wanted = -LEARNING_RATE * clipped(seen["gradient"])
            expect(seen["moved"].norm() / wanted.norm(), "the step's length over float32's").between(
                1 - ROUNDING, 1 + ROUNDING
            )
            expect(
                (seen["moved"] - wanted).norm() / wanted.norm(), "the step's distance from float32's, relative,"
            ).below(ROUNDING)


@check(
    kind="behaviour",
    title="The log shows the gradient's norm",
    property="The reported norm must be the gradient's as float32 has it, before clipping, at any scale.",
    instrument="torch.nn.utils.clip_grad_norm_(policy.parameters(), inf)",
)
def test_reported_norm_is_the_gradients(submission: Submission, rng: Rng) -> None:
    for scale in (2.0 ** rng.integer(8, 11), 2.0 ** rng.integer(13, 16)):
        seen = submission.observe("one_step", batch=far_off(rng), seed=rng.seed(), scale=scale)
        expect(seen["norm"] / float(seen["gradient"].norm()), "the reported norm over the gradient's").between(
            1 - ROUNDING, 1 + ROUNDING
        )


@check(
    kind="invariant",
    title="Small gradients survive float16",
    property="A loss so small that its gradients are zero in float16 must still move the weights as in float32.",
    instrument="debugkit.check(policy, batch, select=['DK209'])",
)
def test_small_gradients_survive(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("one_step", batch=far_off(rng), seed=rng.seed(), scale=2.0**16, loss_weight=1e-4)
    wanted = -LEARNING_RATE * seen["gradient"]
    expect((seen["moved"] - wanted).norm() / wanted.norm(), "the step's distance from float32's, relative,").below(
        SMALL_ROUNDING
    )


@check(
    kind="invariant",
    title="A step that overflows moves nothing",
    property="Where a scaled gradient overflows, the weights must stay as they are and the scale must be halved.",
    instrument="debugkit.detect_overflow(policy, batch)",
)
def test_overflow_is_skipped(submission: Submission, rng: Rng) -> None:
    scale = 2.0 ** rng.integer(30, 40)
    seen = submission.observe("one_step", batch=random_batch(rng, rng.integer(2, 6)), seed=rng.seed(), scale=scale)
    expect(float(seen["moved"].norm()), "how far the weights moved").equals(0.0)
    expect(seen["skipped"], "that the step was skipped, as reported,").is_true()
    expect(seen["scale_after"], "the scale after it").equals(scale / 2)


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
    title="Forty steps lead somewhere",
    property=f"After forty steps on one batch at most {LOSS_BAR:.0%} of the loss may be left.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_training_moves(submission: Submission, seed: int) -> None:
    seen = submission.observe("trained", seed=seed)
    expect(seen["losses"], "the losses").finite()
    expect(seen["in_float32"] / seen["losses"][0], "the share of the loss that is left").at_most(LOSS_BAR)


SHORT = "test_step_is_the_step_of_float32/what was done to a short gradient"
LONG = "test_step_is_the_step_of_float32/what was done to a long gradient"
NORM = "test_reported_norm_is_the_gradients/the reported norm over the gradient's"


@wrong_fix(
    "no_clipping",
    says="Steps have their full length again, all of them: a gradient ten times too long is followed ten times too far. The clip is what this recipe has against that.",
)
def recognise_no_clipping(evidence: Mapping[str, Any]) -> bool:
    return evidence[SHORT] == "as in float32" and evidence.get(LONG) == "not clipped" and abs(evidence[NORM] - 1) < 0.1


@wrong_fix(
    "larger_constant",
    says="The bound fits one loss scale. The scaler changes it as it goes, and at another scale this clips nothing, or too much. And the log still shows a norm that nobody can compare with anything.",
)
def recognise_larger_constant(evidence: Mapping[str, Any]) -> bool:
    return evidence[SHORT] == "as in float32" and evidence.get(LONG) == "not clipped" and evidence[NORM] > 10


@wrong_fix(
    "divide_by_hand",
    says="The clip sees the right gradients, and then `scaler.step` divides them once more: it only knows that they are unscaled if `scaler.unscale_` did it.",
)
def recognise_divided_twice(evidence: Mapping[str, Any]) -> bool:
    return evidence[SHORT] == "divided once too often" and abs(evidence[NORM] - 1) < 0.1


@wrong_fix(
    "higher_learning_rate",
    says="Every step is now as long as the bound allows: those of gradients that were short, and should have stayed so, as well.",
)
def recognise_learning_rate(evidence: Mapping[str, Any]) -> bool:
    return bool(evidence["one_step"]["learning_rate"] > 10 * LEARNING_RATE)


def far_off(rng: Rng) -> dict[str, Tensor]:
    """A batch whose actions lie far to one side of all that a fresh policy predicts: its gradient is longer than 0.3."""
    batch = random_batch(rng, rng.integer(3, 7))
    return {**batch, "action": 0.5 + rng.uniform(*batch["action"].shape)}


def clipped(gradient: Tensor) -> Tensor:
    """The gradient, shortened to the maximum norm where it is longer."""
    return gradient * min(1.0, MAX_NORM / float(gradient.norm()))


def explain(seen: Mapping[str, Any], scale: float) -> str:
    """What the step did with the gradient, in words."""
    gradient, moved = seen["gradient"], -seen["moved"] / seen["learning_rate"]
    candidates = {
        "as in float32": clipped(gradient),
        "not clipped": gradient,
        "divided once too often": clipped(gradient) / scale,
        "clipped as if the scale were part of it": clipped(gradient * scale) / scale,
    }
    for name, value in candidates.items():
        # Tiny steps are rounded away by the float32 weights themselves, so nearest is near enough.
        if float((moved - value).norm()) < 0.3 * float(value.norm()):
            return name
    return "something else"
