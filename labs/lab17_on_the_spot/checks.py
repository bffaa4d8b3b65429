"""What must hold for a training step in mixed precision. Runs in the grader's process; never sees the learner's code.

The reference is plain float32: the clipped step is computed here from the gradient of the same loss, neither scaled nor clipped.
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
"""The same if the gradient is so small that float32 weights round their updates too."""
LOSS_BAR = 0.4


@check(
    kind="behaviour",
    title="A step equals the float32 step",
    property="At any loss scale the weights must move by the learning rate times the float32 gradient, shortened to the maximum norm if it is longer.",
    instrument="debugkit.watch(policy, optimizer)",
)
def test_step_is_the_step_of_float32(submission: Submission, rng: Rng) -> None:
    for weight, length in ((0.1, "short"), (1.0, "long")):  # the clip must not change the short one
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
    property="The reported norm must be that of the float32 gradient, before clipping, at any scale.",
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
    title="A step that overflows changes nothing",
    property="If a scaled gradient overflows, the weights must not change and the scale must be halved.",
    instrument="debugkit.detect_overflow(policy, batch)",
)
def test_overflow_is_skipped(submission: Submission, rng: Rng) -> None:
    scale = 2.0 ** rng.integer(30, 40)
    seen = submission.observe("one_step", batch=random_batch(rng, rng.integer(2, 6)), seed=rng.seed(), scale=scale)
    expect(float(seen["moved"].norm()), "how far the weights moved").equals(0.0)
    expect(seen["skipped"], "the step is reported as skipped,").is_true()
    expect(seen["scale_after"], "the scale after the step").equals(scale / 2)


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
    title="Forty steps reduce the loss",
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
    says="Steps have their full length again, but all of them: a gradient that is ten times too long causes a step that is ten times too long. The clip must prevent that.",
)
def recognise_no_clipping(evidence: Mapping[str, Any]) -> bool:
    return evidence[SHORT] == "as in float32" and evidence.get(LONG) == "not clipped" and abs(evidence[NORM] - 1) < 0.1


@wrong_fix(
    "larger_constant",
    says="The bound fits one loss scale. The scaler changes the scale during training, and at another scale this clips nothing, or too much. And the reported norm is still multiplied by the scale.",
)
def recognise_larger_constant(evidence: Mapping[str, Any]) -> bool:
    return evidence[SHORT] == "as in float32" and evidence.get(LONG) == "not clipped" and evidence[NORM] > 10


@wrong_fix(
    "divide_by_hand",
    says="The clip gets the correct gradients, but then `scaler.step` divides them once more: it only knows that they are unscaled if `scaler.unscale_` did it.",
)
def recognise_divided_twice(evidence: Mapping[str, Any]) -> bool:
    return evidence[SHORT] == "divided once too often" and abs(evidence[NORM] - 1) < 0.1


@wrong_fix(
    "higher_learning_rate",
    says="Every step is now as long as the bound allows, even for short gradients, whose steps should stay short.",
)
def recognise_learning_rate(evidence: Mapping[str, Any]) -> bool:
    return bool(evidence["one_step"]["learning_rate"] > 10 * LEARNING_RATE)


def far_off(rng: Rng) -> dict[str, Tensor]:
    """A batch whose actions are all far to one side of a fresh policy's predictions: its gradient is longer than 0.3."""
    batch = random_batch(rng, rng.integer(3, 7))
    return {**batch, "action": 0.5 + rng.uniform(*batch["action"].shape)}


def clipped(gradient: Tensor) -> Tensor:
    """The gradient, shortened to the maximum norm if it is longer."""
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
        # Rounding in the float32 weights distorts tiny steps, so a rough match is enough.
        if float((moved - value).norm()) < 0.3 * float(value.norm()):
            return name
    return "something else"
