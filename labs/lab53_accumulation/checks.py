"""What must hold of accumulated gradients. Runs in the grader's process; judges, and never sees the code.

The reference is one backward pass of the stock policy on all frames in one batch, in float64, made here.
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
"""Not 1e-12: Llama's RMSNorm computes in float32 in a float64 policy, too."""


@check(
    kind="behaviour",
    title="The gradient is the whole batch's, in 1, 2, 4 or 8 pieces",
    property="In float64 the accumulated gradient must be that of one batch of all frames, however many micro-batches it is made in.",
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
        expect(apart(seen["gradients"], gradient), f"the gradient's relative error, in {parts} micro-batches").at_most(
            CLOSE
        )
        expect(float(seen["loss"]), f"the loss, in {parts} micro-batches").close_to(loss, rtol=CLOSE)
    single = submission.observe("accumulated", window=[rows(batch, torch.arange(8))], seed=seed, double=False)
    expect(apart(single["gradients"], gradient), "the gradient's relative error in float32").at_most(1e-5)


@check(
    kind="behaviour",
    title="Micro-batches may hold unequally many frames",
    property="The last micro-batch of an epoch is smaller: with any cut of the frames the gradient must be the whole batch's.",
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
    property="Two updates of training_step must leave the same weights, whether made in one micro-batch or in four.",
    instrument="lab run 53",
)
def test_the_update_is_the_same(submission: Submission, rng: Rng) -> None:
    batch, seed = unequal_batch(rng, 8), rng.seed()
    whole = submission.observe("updated", batch=batch, parts=1, seed=seed)
    loss, _ = reference(batch, seed)
    expect(whole["losses"][0], "the loss of an update in one piece").close_to(loss, rtol=CLOSE)
    pieces = submission.observe("updated", batch=batch, parts=PARTS, seed=seed)
    expect(pieces["losses"], f"the losses of two updates in {PARTS} pieces").close_to(whole["losses"], rtol=CLOSE)
    expect(pieces["head"], f"the head's weights after two updates in {PARTS} pieces").close_to(
        whole["head"], rtol=CLOSE, atol=1e-7
    )


@check(
    kind="invariant",
    title="Every frame once, and as it was",
    property="split must hand on each frame exactly once with all its steps, and accumulate must not change what it is given.",
    instrument="debugkit.trace_batches(policy)",
)
def test_every_frame_once(submission: Submission, rng: Rng) -> None:
    batch, seed = unequal_batch(rng, 8), rng.seed()
    for parts in (1, 2, PARTS):
        given = submission.observe("split_up", batch=batch, parts=parts)
        expect(len(given), f"the number of micro-batches out of {parts}").equals(parts)
        together = {name: torch.cat([micro_batch[name] for micro_batch in given]) for name in batch}
        order, wanted = together["state"][:, 0].argsort(), batch["state"][:, 0].argsort()
        for name in batch:
            expect(together[name][order], f"`{name}` of all micro-batches").close_to(
                batch[name][wanted], rtol=0, atol=0
            )
    window = [rows(batch, index) for index in torch.arange(8).chunk(2)]
    after = submission.observe("accumulated", window=window, seed=seed)["window"]
    for micro_batch, kept in zip(window, after, strict=True):
        expect(kept["action_is_pad"], "action_is_pad, afterwards").equals(micro_batch["action_is_pad"])


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
    title="Trained in four pieces, it is the same policy",
    property=f"After {STEPS} updates in {PARTS} micro-batches, every loss and the loss on new frames must be those of updates in one piece.",
    instrument="lab run 53",
)
def test_training_is_the_same(submission: Submission, seed: int) -> None:
    whole = submission.observe("training", seed=seed, steps=STEPS, parts=1)
    pieces = submission.observe("training", seed=seed, steps=STEPS, parts=PARTS)
    expect(whole["losses"][-5:].mean() / whole["losses"][0], "the share of the first loss that is left").below(0.95)
    expect(pieces["losses"], "the losses in four pieces").close_to(whole["losses"], rtol=1e-2, atol=1e-3)
    apart = (pieces["held_out"] - whole["held_out"]).abs()
    expect(float(apart), "the distance of the two losses on new frames").at_most(2e-3)


FORMULA = "test_gradient_is_the_whole_batchs/formula"


@wrong_fix(
    "sum_of_means",
    says="Now the shares are not divided at all: in k micro-batches loss and gradient are k times as large, and each micro-batch still counts the same whatever it holds.",
)
def recognise_sum(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "sum of means"


@wrong_fix(
    "by_frames",
    says="This weights a micro-batch by its frames. The loss is a mean over steps, and these frames do not have equally many.",
)
def recognise_frames(evidence: Mapping[str, Any]) -> bool:
    return evidence.get("test_unequal_micro_batches/formula") == "by frames"


@wrong_fix(
    "by_all_steps",
    says="The shares agree with each other now, but they are divided by all steps, padding included. The whole batch's loss is a mean over the steps that are none.",
)
def recognise_all_steps(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "sum over all steps"


@wrong_fix(
    "first_step_only",
    says="Equally many steps in each micro-batch, because the rest is thrown away. The chunk's later steps are targets too.",
)
def recognise_truncation(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "first steps only"


def unequal_batch(rng: Rng, size: int) -> Batch:
    """A batch whose frames have 1 to 4 steps, in the order of their number, both ends present."""
    batch = random_batch(rng, size)
    length = rng.integers(1, HORIZON + 1, size).sort().values
    length[0], length[-1] = 1, HORIZON
    return {**batch, "action_is_pad": torch.arange(HORIZON)[None] >= length[:, None]}


def rows(batch: Batch, index: Tensor) -> Batch:
    """Some frames of a batch."""
    return {name: values[index] for name, values in batch.items()}


def reference(batch: Batch, seed: int) -> tuple[float, Tensor]:
    """Loss and gradient, in one vector, of one backward on the whole batch in float64."""
    policy = Policy.from_base(seed=seed).double()
    loss = policy(**as_double(batch)).loss
    loss.backward()
    return float(loss), torch.cat([p.grad.flatten() for _, p in sorted(policy.named_parameters())])


def apart(gradients: Mapping[str, Tensor], wanted: Tensor) -> float:
    """The relative distance of two gradients; infinite where a parameter has none."""
    found = (
        torch.cat([gradients[name].double().flatten() for name in sorted(gradients)]) if gradients else torch.zeros(0)
    )
    return float((found - wanted).norm() / wanted.norm()) if found.shape == wanted.shape else float("inf")


def formula(measured: float, wanted: float, window: list[Batch], seed: int) -> str:
    """Which way of adding up explains the loss of a window, where it is not the wanted one."""
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
    """Floating values in float64."""
    return {name: values.double() if values.is_floating_point() else values for name, values in batch.items()}
