"""Requirements for training in float16. Runs in the grader's process; judges data, and never sees the code.

The reference is the same loss and its gradient in float32, on random batches with random frame weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import expect_image_and_instruction_to_matter, padded_batch

ROUNDING = 1e-2
LEARNING_RATE = 1e-3
SHARE_LEFT = 0.3
FRAMES_IN_DATA_SET = 1_000_000


@check(
    kind="behaviour",
    title="The gradient equals that of float32",
    property="The optimizer must receive float32 gradients within one per cent of those of the same loss computed in float32, for small frame weights and for large ones.",
    instrument="debugkit.check(half, batch, select=['DK209'])",
)
def test_gradient_is_float32s(submission: Submission, rng: Rng) -> None:
    for heaviness in (1.0, 0.2, 5.0):
        batch, weight = weighted_batch(rng, rng.integer(3, 9), heaviness)
        seen = submission.observe("gradients", batch=batch, frame_weight=weight, seed=rng.seed())
        gradient, wanted = seen["gradient"], seen["in_float32"]
        expect(float((gradient == 0).double().mean()), "share of zeros")
        expect(float(gradient.norm() / wanted.norm()), "length over float32's")
        expect(seen["dtypes"], "the dtypes of the gradients").equals(["torch.float32"])
        expect(gradient, "the gradient").has_shape(len(wanted))
        expect((gradient - wanted).norm() / wanted.norm(), "the gradient's distance from float32's, relative,").below(
            ROUNDING
        )


@check(
    kind="behaviour",
    title="The layers run in float16",
    property="Every linear layer must compute in float16, in the towers and in the head.",
    instrument="debugkit.detect_overflow(policy, batch)",
)
def test_layers_run_in_float16(submission: Submission, rng: Rng) -> None:
    batch, weight = weighted_batch(rng, 3)
    ran = submission.observe("dtypes", batch=batch, frame_weight=weight, seed=rng.seed())
    expect(len(ran), "the number of linear layers that ran").above(20)
    others = sorted(name for name, dtype in ran.items() if dtype != "torch.float16")
    expect(others, "the list of layers that ran in another dtype").equals([])


@check(
    kind="invariant",
    title="A step moves the master and updates the copy",
    property="One step of AdamW must move nearly every weight, by the learning rate at most, and afterwards the float16 policy must be the rounded master.",
    instrument="debugkit.gradient_table(policy)",
)
def test_step_moves_the_weights(submission: Submission, rng: Rng) -> None:
    batch, weight = weighted_batch(rng, 5)
    seen = submission.observe("one_step", batch=batch, frame_weight=weight, seed=rng.seed())
    expect(seen["learning_rate"], "the learning rate").equals(LEARNING_RATE)
    # The embeddings of words that do not occur, and the keys' biases, have no gradient in any correct policy.
    expect((seen["moved"] != 0).double().mean(), "the share of the weights that moved").above(0.9)
    expect(seen["moved"].abs().max(), "how far a weight moved at most").at_most(1.01 * LEARNING_RATE)
    expect(seen["apart"], "how far the float16 copy is from the master, relative,").below(1e-3)


@check(
    kind="invariant",
    title="The loss is reported in square metres",
    property="The reported loss must equal that of float32, whatever factor the backward pass uses.",
    instrument="lab run 28",
)
def test_loss_is_reported_in_square_metres(submission: Submission, rng: Rng) -> None:
    batch, weight = weighted_batch(rng, rng.integer(3, 9))
    seen = submission.observe("gradients", batch=batch, frame_weight=weight, seed=rng.seed())
    expect(seen["loss"] / seen["loss_in_float32"], "the reported loss over float32's").between(0.99, 1.01)


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
    title="The policy learns in float16",
    property=f"After forty steps on one batch, the loss, computed in float32, must be at most {SHARE_LEFT:.0%} of its first value.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_policy_learns(submission: Submission, seed: int) -> None:
    expect(submission.observe("trained", seed=seed)["left"], "the share of the loss that is left").at_most(SHARE_LEFT)


ZEROS = "test_gradient_is_float32s/share of zeros"
LENGTH = "test_gradient_is_float32s/length over float32's"
RATE = "test_step_moves_the_weights/the learning rate"


@wrong_fix(
    "higher_learning_rate",
    says="The gradient is zero, not small: any learning rate times zero is zero.",
)
def recognise_learning_rate(evidence: Mapping[str, Any]) -> bool:
    return evidence[ZEROS] > 0.9 and evidence[RATE] > 10 * LEARNING_RATE


@wrong_fix(
    "everything_in_float32",
    says="Nothing underflows in float32. But the accelerator has no float32, which is why the policy was moved to float16: move the gradients into float16's range instead.",
)
def recognise_float32(evidence: Mapping[str, Any]) -> bool:
    ran = evidence["test_layers_run_in_float16/dtypes"]
    return len(ran) > 0 and set(ran.values()) == {"torch.float32"}


@wrong_fix(
    "never_divided",
    says="The gradients no longer underflow, but they are never divided by the scale again. AdamW is insensitive to that, so the loss falls; clipping, logging or another optimizer is not.",
)
def recognise_never_divided(evidence: Mapping[str, Any]) -> bool:
    length = evidence[LENGTH]
    return length > 1e3 and abs(math.log2(length) - round(math.log2(length))) < 0.01


@wrong_fix(
    "default_scale",
    says="Most of the gradient is there now, but much of it is subnormal: its length is correct, but it differs from float32's by more than one per cent. Measure how small the gradients are before you choose the scale.",
)
def recognise_default_scale(evidence: Mapping[str, Any]) -> bool:
    return evidence[ZEROS] < 0.9 and abs(evidence[LENGTH] - 1) < 0.05 and "failed" in _outcome(evidence)


@wrong_fix(
    "weights_of_the_batch",
    says="These weights sum to one over the batch instead of the data set. The gradients are large enough, but they belong to a different loss: a batch of poor frames now counts as much as one of good frames.",
)
def recognise_batch_weights(evidence: Mapping[str, Any]) -> bool:
    loss = evidence.get("test_loss_is_reported_in_square_metres/the reported loss over float32's")
    return evidence[ZEROS] < 0.9 and loss is not None and loss > 100


def _outcome(evidence: Mapping[str, Any]) -> str:
    return str(evidence["test_gradient_is_float32s"]["outcome"])


def weighted_batch(rng: Rng, size: int, heaviness: float = 1.0) -> tuple[dict[str, Tensor], Tensor]:
    """A batch and different weights for its frames (B,); later steps may be padded, the first never."""
    batch = padded_batch(rng, size)
    return batch, heaviness * rng.uniform(size, low=0.2, high=1.8) / FRAMES_IN_DATA_SET
