"""What must hold for accumulated gradients. Runs in the grader's process, without the learner's code.

The reference is one backward pass of the base policy on all frames in one batch, in float64, computed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import HORIZON, expect_image_and_instruction_to_matter, random_batch
from labs.vla.policy import Policy

Batch = dict[str, Tensor]
STEPS = 12
PARTS = 4
CLOSE = 1e-6
"""Not 1e-12: Llama's RMSNorm computes in float32 even in a float64 policy."""


@check(
    kind="behaviour",
    title="The gradient is the whole batch's, with 1, 2, 4 or 8 micro-batches",
    property="In float64 the accumulated gradient must be that of one batch of all frames, whatever the number of micro-batches.",
    instrument="debugkit.check(policy, batch, loss_fn, declare=Declare(accumulation=4), select=['DK507'])",
)
def test_gradient_is_the_whole_batchs(submission: Submission, rng: Rng) -> None:
    batch, seed = unequal_batch(rng, 8), rng.seed()
    loss, gradient = reference(batch, seed)
    for parts in (2, 1, 4, 8):
        window = [rows(batch, index) for index in torch.arange(8).chunk(parts)]
        seen = submission.observe("accumulated", window=window, seed=seed)
        if parts == 2:
            expect(formula(float(seen["loss"]), loss, window, seed), "formula")
        expect(apart(seen["gradients"], gradient), f"the gradient's relative error with {parts} micro-batches").at_most(
            CLOSE
        )
        expect(float(seen["loss"]), f"the loss with {parts} micro-batches").close_to(loss, rtol=CLOSE)
    single = submission.observe("accumulated", window=[rows(batch, torch.arange(8))], seed=seed, double=False)
    expect(apart(single["gradients"], gradient), "the gradient's relative error in float32").at_most(1e-5)


@check(
    kind="behaviour",
    title="Micro-batches may differ in size",
    property="The gradient must be the whole batch's however the frames are divided: the last micro-batch of an epoch is often smaller.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_unequal_micro_batches(submission: Submission, rng: Rng) -> None:
    batch, seed = unequal_batch(rng, 9), rng.seed()
    loss, gradient = reference(batch, seed)
    order, cut = rng.permutation(9), rng.integer(1, 4)
    window = [rows(batch, order[:cut]), rows(batch, order[cut:4]), rows(batch, order[4:])]
    window = [micro_batch for micro_batch in window if len(micro_batch["state"])]
    seen = submission.observe("accumulated", window=window, seed=seed)
    expect(formula(float(seen["loss"]), loss, window, seed), "formula")
    expect(apart(seen["gradients"], gradient), "the gradient's relative error").at_most(CLOSE)
    expect(float(seen["loss"]), "the loss").close_to(loss, rtol=CLOSE)


@check(
    kind="behaviour",
    title="The update is the same",
    property="Two calls of training_step must leave the same weights, with one micro-batch or with four.",
    instrument="lab run 53",
)
def test_the_update_is_the_same(submission: Submission, rng: Rng) -> None:
    batch, seed = unequal_batch(rng, 8), rng.seed()
    whole = submission.observe("updated", batch=batch, parts=1, seed=seed)
    loss, _ = reference(batch, seed)
    expect(whole["losses"][0], "the loss of an update with one micro-batch").close_to(loss, rtol=CLOSE)
    pieces = submission.observe("updated", batch=batch, parts=PARTS, seed=seed)
    expect(pieces["losses"], f"the losses of two updates with {PARTS} micro-batches").close_to(
        whole["losses"], rtol=CLOSE
    )
    expect(pieces["head"], f"the head's weights after two updates with {PARTS} micro-batches").close_to(
        whole["head"], rtol=CLOSE, atol=1e-7
    )


@check(
    kind="invariant",
    title="Every frame once, and unchanged",
    property="split must return each frame exactly once with all its steps, and accumulate must not modify its input.",
    instrument="debugkit.trace_batches(policy)",
)
def test_every_frame_once(submission: Submission, rng: Rng) -> None:
    batch, seed = unequal_batch(rng, 8), rng.seed()
    for parts in (1, 2, PARTS):
        given = submission.observe("split_up", batch=batch, parts=parts)
        expect(len(given), f"the number of micro-batches for parts={parts}").equals(parts)
        together = {name: torch.cat([micro_batch[name] for micro_batch in given]) for name in batch}
        order, wanted = together["state"][:, 0].argsort(), batch["state"][:, 0].argsort()
        for name in batch:
            expect(together[name][order], f"`{name}` of all micro-batches").close_to(
                batch[name][wanted], rtol=0, atol=0
            )
    window = [rows(batch, index) for index in torch.arange(8).chunk(2)]
    after = submission.observe("accumulated", window=window, seed=seed)["window"]
    for micro_batch, kept in zip(window, after, strict=True):
        expect(kept["action_is_pad"], "action_is_pad after accumulate").equals(micro_batch["action_is_pad"])


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
    title="Training with four micro-batches gives the same policy",
    property=f"After {STEPS} updates with {PARTS} micro-batches, every loss and the loss on new frames must be the same as with one.",
    instrument="lab run 53",
)
def test_training_is_the_same(submission: Submission, seed: int) -> None:
    whole = submission.observe("training", seed=seed, steps=STEPS, parts=1)
    pieces = submission.observe("training", seed=seed, steps=STEPS, parts=PARTS)
    expect(whole["losses"][-5:].mean() / whole["losses"][0], "the last losses as a fraction of the first").below(0.95)
    expect(pieces["losses"], "the losses with four micro-batches").close_to(whole["losses"], rtol=1e-2, atol=1e-3)
    apart = (pieces["held_out"] - whole["held_out"]).abs()
    expect(float(apart), "the difference between the two losses on new frames").at_most(2e-3)


FORMULA = "test_gradient_is_the_whole_batchs/formula"


@wrong_fix(
    "sum_of_means",
    says="Now the losses are not divided at all: with k micro-batches, loss and gradient are k times as large, and each micro-batch still counts the same whatever it contains.",
)
def recognise_sum(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "sum of means"


@wrong_fix(
    "by_frames",
    says="This weights a micro-batch by its number of frames. The loss is a mean over steps, and the frames do not all have the same number of steps.",
)
def recognise_frames(evidence: Mapping[str, Any]) -> bool:
    return evidence.get("test_unequal_micro_batches/formula") == "by frames"


@wrong_fix(
    "by_all_steps",
    says="Any number of micro-batches now gives the same gradient, but the sum is divided by all steps, padding included. The whole batch's loss is a mean over the steps that are not padding.",
)
def recognise_all_steps(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "sum over all steps"


@wrong_fix(
    "first_step_only",
    says="The micro-batches have equal numbers of steps, but only because the other steps are discarded. The chunk's later steps are targets too.",
)
def recognise_truncation(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "first steps only"


def unequal_batch(rng: Rng, size: int) -> Batch:
    """A batch whose frames have 1 to 4 steps, sorted by that number, with both 1 and 4 present."""
    batch = random_batch(rng, size)
    length = rng.integers(1, HORIZON + 1, size).sort().values
    length[0], length[-1] = 1, HORIZON
    return {**batch, "action_is_pad": torch.arange(HORIZON)[None] >= length[:, None]}


def rows(batch: Batch, index: Tensor) -> Batch:
    """The frames of a batch at the given indices."""
    return {name: values[index] for name, values in batch.items()}


def reference(batch: Batch, seed: int) -> tuple[float, Tensor]:
    """Loss and gradient (one vector) of one backward pass on the whole batch in float64."""
    policy = Policy.from_base(seed=seed).double()
    loss = policy(**as_double(batch)).loss
    loss.backward()
    return float(loss), torch.cat([p.grad.flatten() for _, p in sorted(policy.named_parameters())])


def apart(gradients: Mapping[str, Tensor], wanted: Tensor) -> float:
    """The relative distance of two gradients; infinite where a parameter has no gradient."""
    found = (
        torch.cat([gradients[name].double().flatten() for name in sorted(gradients)]) if gradients else torch.zeros(0)
    )
    return float((found - wanted).norm() / wanted.norm()) if found.shape == wanted.shape else float("inf")


def formula(measured: float, wanted: float, window: list[Batch], seed: int) -> str:
    """Which way of combining the micro-batches explains the measured loss of a window."""
    if abs(measured - wanted) <= CLOSE * abs(wanted):
        return "mean over all steps that count"
    policy = Policy.from_base(seed=seed).double()

    def loss(batch: Batch) -> float:
        with torch.no_grad():
            return float(policy(**as_double(batch)).loss)

    means = [loss(batch) for batch in window]
    steps = [int((~batch["action_is_pad"]).sum()) for batch in window]
    frames = [len(batch["state"]) for batch in window]
    first = [
        loss({**batch, "action_is_pad": torch.arange(HORIZON)[None].expand(n, -1) > 0})
        for batch, n in zip(window, frames, strict=True)
    ]
    weighted = sum(m * n for m, n in zip(means, steps, strict=True))
    candidates = {
        "mean of means": sum(means) / len(means),
        "by frames": sum(m * n for m, n in zip(means, frames, strict=True)) / sum(frames),
        "sum of means": sum(means),
        "sum over all steps": weighted / (sum(frames) * HORIZON),
        "first steps only": sum(first) / len(first),
    }
    for name, value in candidates.items():
        if abs(measured - value) <= 1e-6 * abs(value):
            return name
    return "another"


def as_double(batch: Batch) -> Batch:
    """The batch with its floating-point values in float64."""
    return {name: values.double() if values.is_floating_point() else values for name, values in batch.items()}
