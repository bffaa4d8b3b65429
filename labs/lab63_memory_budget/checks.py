"""What must hold of a step that fits itself into memory. Runs in the grader's process; judges, and never sees the code.

The machine is a counter of live storage in the probe, backward included, that raises torch.OutOfMemoryError. The reference
of the gradient is one backward of the stock policy on the whole batch, made here without a budget.
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
MIB = 2**20
FRAMES = 32
FITS = {12.0: 16, 7.5: 8}
"""Micro-batch that the stock policy's step can have of 32 frames in so many MiB; halving finds these."""
STEPS, OUTCOME_BUDGET = 8, 9.0


@check(
    kind="behaviour",
    title="The step fits, backward included",
    property="In every budget that some micro-batch fits, the step must halve its way to one that runs, and make its update.",
    instrument="debugkit.find_batch_size(make_batch, policy, budget_bytes=...)",
)
def test_the_step_fits(submission: Submission, rng: Rng) -> None:
    batch = unequal_batch(rng)
    for budget in FITS:
        seen = submission.observe("step_within", batch=batch, budget=budget * MIB, seed=rng.seed())
        ran = seen["raised"] is None
        expect(ran, f"a step of {FRAMES} frames runs in {budget} MiB, ran")
        expect(
            ran, f"a step of {FRAMES} frames in {budget} MiB ({(seen['raised'] or 'ran').splitlines()[0]})"
        ).is_true()


@check(
    kind="behaviour",
    title="The gradient is the whole batch's",
    property="However many micro-batches were needed, the gradient must be that of all frames in one backward.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_gradient_is_the_whole_batchs(submission: Submission, rng: Rng) -> None:
    batch, seed = unequal_batch(rng), rng.seed()
    policy = Policy.from_base(seed=seed)
    loss = policy(**batch).loss
    loss.backward()
    for budget in (7.5, 100.0):
        seen = submission.observe("step_within", batch=batch, budget=budget * MIB, seed=seed)
        expect(len(seen["gradients"]), f"the number of gradients in {budget} MiB").equals(
            len(list(policy.parameters()))
        )
        wanted, found = flat({n: p.grad for n, p in policy.named_parameters()}), flat(seen["gradients"])
        expect(
            float((found - wanted).norm() / wanted.norm()), f"the gradient's relative error in {budget} MiB"
        ).at_most(1e-4)
        expect(seen["loss"], f"the loss in {budget} MiB").close_to(float(loss), rtol=1e-4)


@check(
    kind="behaviour",
    title="As few micro-batches as fit",
    property="The micro-batch must be the batch or that halved, and not halved more often than it has to be.",
    instrument="debugkit.find_batch_size(make_batch, policy, budget_bytes=...)",
)
def test_as_few_micro_batches_as_fit(submission: Submission, rng: Rng) -> None:
    batch = unequal_batch(rng)
    for budget, frames in FITS.items():
        seen = submission.observe("step_within", batch=batch, budget=budget * MIB, seed=rng.seed())
        sizes = [size for size, _ in seen["forwards"]]
        expect(sizes[-1], f"the last micro-batch in {budget} MiB")
        expect(sizes[-1], f"the micro-batch it settles on in {budget} MiB").at_least(frames)
        expect(sizes.count(sizes[-1]) * sizes[-1], "the number of frames in the attempt that ran").equals(FRAMES)


@check(
    kind="invariant",
    title="A step leaves nothing but what lasts",
    property="Afterwards only parameters, gradients and the optimizer's state may be alive.",
    instrument="debugkit.memory_profile(policy, batch, optimizer=optimizer)",
)
def test_nothing_is_left(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("step_within", batch=unequal_batch(rng), budget=12 * MIB, seed=rng.seed())
    expect(seen["left"], "the number of bytes left beyond what lasts").at_most(16 * 1024)


@check(
    kind="invariant",
    title="It is the same model",
    property="The policy must have the stock policy's trained parameters, under the same names and of the same shapes.",
    instrument="debugkit.check(policy, batch, select=['DK113'])",
)
def test_it_is_the_same_model(submission: Submission) -> None:
    stock = {name: list(parameter.shape) for name, parameter in Policy.from_base().named_parameters()}
    expect(submission.observe("parameters"), "the trained parameters").equals(stock)


@check(
    kind="invariant",
    title="The prediction is the stock policy's",
    property="The predicted actions must be the stock policy's, and image and instruction must change them.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_prediction_is_the_stock_policys(submission: Submission, rng: Rng) -> None:
    batch, seed = random_batch(rng, 3), rng.seed()
    predicted = submission.observe("action", batch=batch, seed=seed)
    expect(predicted, "the action chunk").close_to(
        Policy.from_base(seed=seed).eval().predict(batch), rtol=1e-4, atol=1e-5
    )
    expect_image_and_instruction_to_matter(submission, rng, batch=batch)


@check(
    kind="outcome",
    title="It trains in its budget",
    property=f"{STEPS} steps of {FRAMES} frames in {OUTCOME_BUDGET:g} MiB must give the losses that they give without a budget.",
    instrument="lab run 63",
)
def test_it_trains_in_its_budget(submission: Submission, seed: int) -> None:
    asked = {"seed": seed, "steps": STEPS, "batch_size": FRAMES}
    free = submission.observe("losses_within", budget=None, **asked)
    within = submission.observe("losses_within", budget=OUTCOME_BUDGET * MIB, **asked)
    expect(len(within), "the number of steps made in the budget").equals(STEPS)
    apart = max(abs(a - b) for a, b in zip(free, within, strict=True))
    expect(apart, "the largest distance of the losses").at_most(5e-3)


@wrong_fix(
    "one_frame_at_a_time",
    says="It fits, and it takes the memory's word for nothing: one frame at a time, thirty-two forwards where two would do. Why did the halving not find them?",
)
def recognise_one_frame(evidence: Mapping[str, Any]) -> bool:
    return all(
        evidence.get(f"test_as_few_micro_batches_as_fit/the last micro-batch in {budget} MiB", 1) == 1
        and evidence.get(f"test_the_step_fits/a step of {FRAMES} frames runs in {budget} MiB, ran", True)
        for budget in FITS
    )


@wrong_fix(
    "train_on_what_fits",
    says="The step fits because it leaves out the frames that do not: this is the gradient of a smaller batch.",
)
def recognise_dropped(evidence: Mapping[str, Any]) -> bool:
    seen = evidence.get("test_the_step_fits/step_within")
    return (
        isinstance(seen, Mapping)
        and seen.get("raised", "") is None
        and 1 < seen["forwards"][-1][0] < FRAMES
        and [size for size, _ in seen["forwards"]].count(seen["forwards"][-1][0]) == 1
    )


@wrong_fix(
    "checkpoint_layers_only",
    says="Checkpointing makes the step smaller, so this budget it fits. In a smaller one it must halve again, and each attempt still begins with what the last one left.",
)
def recognise_checkpoint_only(evidence: Mapping[str, Any]) -> bool:
    ran = [
        evidence.get(f"test_the_step_fits/a step of {FRAMES} frames runs in {budget} MiB, ran", False)
        for budget in FITS
    ]
    return ran[0] and not ran[-1]


def unequal_batch(rng: Rng) -> Batch:
    """32 frames of 1 to 4 steps each."""
    length = rng.integers(1, HORIZON + 1, FRAMES)
    return {**random_batch(rng, FRAMES), "action_is_pad": torch.arange(HORIZON)[None] >= length[:, None]}


def flat(gradients: Mapping[str, Tensor]) -> Tensor:
    """All gradients in one vector, by name."""
    return torch.cat([gradients[name].double().flatten() for name in sorted(gradients)])
