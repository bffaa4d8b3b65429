"""What must hold for a step that adapts to memory. Runs in the grader's process, without the learner's code.

The machine is a counter of live storage in the probe, backward passes included, that raises torch.OutOfMemoryError. The
reference gradient comes from one backward pass of the base policy on the whole batch, computed here without a budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import HORIZON, random_batch
from labs.stock_policy import expect_stock_parameters, expect_stock_prediction
from labs.vla.policy import Policy

Batch = dict[str, Tensor]
MIB = 2**20
FRAMES = 32
FITS = {12.0: 16, 7.5: 8}
"""By budget in MiB: the micro-batch of 32 frames that halving finds for the base policy's step."""
STEPS, OUTCOME_BUDGET = 8, 9.0


@check(
    kind="behaviour",
    title="The step fits, including the backward pass",
    property="In every budget that fits some micro-batch, the step must halve its micro-batch until it runs, and then update the weights.",
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
    property="However many micro-batches were needed, the gradient must be that of all frames in one backward pass.",
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
    property="The micro-batch must be the whole batch, halved no more often than necessary.",
    instrument="debugkit.find_batch_size(make_batch, policy, budget_bytes=...)",
)
def test_as_few_micro_batches_as_fit(submission: Submission, rng: Rng) -> None:
    batch = unequal_batch(rng)
    for budget, frames in FITS.items():
        seen = submission.observe("step_within", batch=batch, budget=budget * MIB, seed=rng.seed())
        sizes = [size for size, _ in seen["forwards"]]
        expect(sizes[-1], f"the last micro-batch in {budget} MiB")
        expect(sizes[-1], f"the micro-batch size that runs in {budget} MiB").at_least(frames)
        expect(sizes.count(sizes[-1]) * sizes[-1], "the number of frames in the attempt that ran").equals(FRAMES)


@check(
    kind="invariant",
    title="A step leaves no activations behind",
    property="After a step only parameters, gradients and the optimizer's state may be alive.",
    instrument="debugkit.memory_profile(policy, batch, optimizer=optimizer)",
)
def test_nothing_is_left(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("step_within", batch=unequal_batch(rng), budget=12 * MIB, seed=rng.seed())
    expect(seen["left"], "the number of other bytes left after a step").at_most(16 * 1024)


@check(
    kind="invariant",
    title="The model is unchanged",
    property="The policy must have the base policy's trained parameters, with the same names and shapes.",
    instrument="debugkit.check(policy, batch, select=['DK113'])",
)
def test_it_is_the_same_model(submission: Submission) -> None:
    expect_stock_parameters(submission)


@check(
    kind="invariant",
    title="The prediction is unchanged",
    property="The predicted actions must be the base policy's, and must depend on the image and the instruction.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_prediction_is_the_stock_policys(submission: Submission, rng: Rng) -> None:
    expect_stock_prediction(submission, rng, rtol=1e-4, atol=1e-5)


@check(
    kind="outcome",
    title="Training works within the budget",
    property=f"{STEPS} steps of {FRAMES} frames in {OUTCOME_BUDGET:g} MiB must give the same losses as without a budget.",
    instrument="lab run 63",
)
def test_it_trains_in_its_budget(submission: Submission, seed: int) -> None:
    asked = {"seed": seed, "steps": STEPS, "batch_size": FRAMES}
    free = submission.observe("losses_within", budget=None, **asked)
    within = submission.observe("losses_within", budget=OUTCOME_BUDGET * MIB, **asked)
    expect(len(within), "the number of steps that fit into the budget").equals(STEPS)
    apart = max(abs(a - b) for a, b in zip(free, within, strict=True))
    expect(apart, "the largest difference between the losses").at_most(5e-3)


@wrong_fix(
    "one_frame_at_a_time",
    says="It fits, but one frame at a time: thirty-two forward passes where two would be enough. Why did halving not find a size that fits?",
)
def recognise_one_frame(evidence: Mapping[str, Any]) -> bool:
    return all(
        evidence.get(f"test_as_few_micro_batches_as_fit/the last micro-batch in {budget} MiB", 1) == 1
        and evidence.get(f"test_the_step_fits/a step of {FRAMES} frames runs in {budget} MiB, ran", True)
        for budget in FITS
    )


@wrong_fix(
    "train_on_what_fits",
    says="The step fits because it leaves out the frames that do not fit: this is the gradient of a smaller batch.",
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
    says="Checkpointing makes the step smaller, so it fits into this budget. In a smaller one it must halve again, and each attempt still starts with what the last one left behind.",
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
    """All gradients in one vector, sorted by name."""
    return torch.cat([gradients[name].double().flatten() for name in sorted(gradients)])
