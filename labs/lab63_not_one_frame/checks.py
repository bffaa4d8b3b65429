"""What must hold for a step that adapts to memory. Runs in the grader's process, without the learner's code.

The machine is a counter of live storage in the probe, backward passes included, that raises torch.OutOfMemoryError. The
reference gradient comes from one backward pass of the base policy on the whole batch, computed here without a budget.
"""

from __future__ import annotations

import re
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
LARGE, SMALL = FITS
STEPS, OUTCOME_BUDGET = 8, 9.0
RATE = 1e-3
OPTIMIZER = {"type": "AdamW", "lr": RATE, "betas": (0.9, 0.95), "weight_decay": 0.01}
TOLERANCE = 3e-6
"""For a weight after an update: less than a third of what weight decay alone changes in a weight of 1."""


@check(
    kind="behaviour",
    title="The step fits, including the backward pass",
    property="In every budget that fits some micro-batch, the step must halve its micro-batch until it runs.",
    instrument="debugkit.find_batch_size(lambda size: {name: value[:size] for name, value in batch.items()}, policy, budget_bytes=12 * 2**20, largest=len(batch['state']))",
)
def test_the_step_fits(submission: Submission, rng: Rng) -> None:
    batch = unequal_batch(rng, FRAMES)
    seen = {}
    for budget in FITS:
        seen[budget] = submission.observe("step_within", batch=batch, budget=budget * MIB, seed=rng.seed())
        expect(seen[budget], f"the step in {budget} MiB")
    for budget, step in seen.items():
        expect(ending(step), f"what became of a step of {FRAMES} frames in {budget} MiB").equals("one update")


@check(
    kind="behaviour",
    title="The update is the whole batch's",
    property="However many micro-batches were needed, the gradient, the loss and the updated weights must be those of all frames in one backward pass. No step may update a weight twice, even if memory runs out in the optimizer.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_gradient_is_the_whole_batchs(submission: Submission, rng: Rng) -> None:
    situations = (
        (FRAMES, 100.0, False),
        (FRAMES, 7.5, False),
        (17, 6.0, True),
        (1, 12.0, False),
        (3, 12.0, False),
    )
    for frames, budget, stale in situations:
        batch, seed = unequal_batch(rng, frames), rng.seed()
        batch["action_is_pad"] |= frames == 3
        batch["action_is_pad"][-1, 1:] = True  # the last frame, which is a micro-batch of its own, has one step
        seen = submission.observe(
            "step_within", batch=batch, budget=budget * MIB, seed=seed, stale=stale, training=not stale
        )
        where = f"of {frames} frames{', all of them padding' if frames == 3 else ''}, in {budget} MiB"
        expect(seen, f"the step {where}")
        expect(ending(seen), f"what became of a step {where}").equals("one update")
        policy, loss = reference_step(seed, batch)
        wanted = {name: p.grad for name, p in policy.named_parameters()}
        expect(len(seen["gradients"]), f"the number of gradients {where}").equals(len(wanted))
        found = flat(seen["gradients"]) - flat(wanted)
        expect(
            float(found.norm() / flat(wanted).norm().clamp(min=1e-6)), f"the gradient's relative error {where}"
        ).at_most(1e-4)
        expect(seen["loss"], f"the loss {where}").close_to(loss, rtol=1e-4)
        expect(moved(seen["weights"], policy, wanted), f"the weights' largest error after the update {where}").at_most(
            TOLERANCE
        )
    batch, seed = unequal_batch(rng, 4), rng.seed()
    seen = submission.observe("step_within", batch=batch, budget=100 * MIB, seed=seed, optimizer_fails=True)
    once, _ = reference_step(seed, batch)
    wanted = {name: p.grad for name, p in once.named_parameters()}
    apart = min(moved(seen["weights"], policy, wanted) for policy in (once, Policy.from_base(seed=seed)))
    where = "after a step in which the optimizer ran out of memory"
    expect(apart, f"the weights' largest difference from both no update and one update, {where},").at_most(TOLERANCE)


@check(
    kind="behaviour",
    title="If nothing fits, the error says what was tried",
    property="If not even one frame fits, the step must raise torch.OutOfMemoryError with each size that was tried and its reason, without an update. Any other error, a RuntimeError too, must be raised as it is.",
    instrument="lab run 63",
)
def test_nothing_fits(submission: Submission, rng: Rng) -> None:
    frames = rng.integer(9, 15)
    batch, seed = unequal_batch(rng, frames), rng.seed()
    resident = sum(values.nbytes for values in batch.values()) + sum(
        p.nbytes for p in Policy.from_base(seed=0).parameters()
    )
    seen = submission.observe("step_within", batch=batch, budget=resident + 0.4 * MIB, seed=seed)
    expect(ending(seen), "what became of a step of which not even one frame fits").equals("torch.OutOfMemoryError")
    sizes = [frames // 2**halved for halved in range(frames.bit_length())]
    expect(list(dict.fromkeys(size for size, _ in seen["forwards"])), "the sizes that were tried").equals(sizes)
    lines = seen["raised"].splitlines()
    for size, reason in zip(sizes, seen["reasons"], strict=True):
        told = any(re.search(rf"\b{size}\b.*{re.escape(reason)}", line) for line in lines)
        expect(
            "told" if told else "not told",
            f"the reason why micro-batches of {size} did not fit, in the error's message,",
        ).equals("told")
    fresh = dict(Policy.from_base(seed=seed).named_parameters())
    changed = [name for name, value in seen["weights"].items() if not torch.equal(value, fresh[name])]
    expect(", ".join(changed[:1]) or "nothing", "what the failed step changed in the weights").equals("nothing")
    other = submission.observe("other_error", batch=batch, seed=seed)
    expect(other, "what the step raises if the policy raises a RuntimeError").equals("RuntimeError: no camera 3")


@check(
    kind="behaviour",
    title="As few micro-batches as fit",
    property="The micro-batch must be the whole batch, halved no more often than necessary.",
    instrument="debugkit.find_batch_size(lambda size: {name: value[:size] for name, value in batch.items()}, policy, budget_bytes=12 * 2**20, largest=len(batch['state']))",
)
def test_as_few_micro_batches_as_fit(submission: Submission, rng: Rng) -> None:
    batch = unequal_batch(rng, FRAMES)
    sizes = {}
    for budget in FITS:
        seen = submission.observe("step_within", batch=batch, budget=budget * MIB, seed=rng.seed())
        sizes[budget] = [size for size, _ in seen["forwards"]]
        expect(sizes[budget], f"the micro-batches in {budget} MiB")
    for budget, frames in FITS.items():
        last = sizes[budget][-1]
        expect(last, f"the micro-batch size that runs in {budget} MiB").at_least(frames)
        expect(
            sizes[budget].count(last) * last, f"the number of frames in the attempt that ran in {budget} MiB"
        ).equals(FRAMES)


@check(
    kind="invariant",
    title="A step leaves no activations behind",
    property="After a step only parameters, gradients and the optimizer's state may be alive.",
    instrument="debugkit.memory_profile(policy, batch, optimizer=optimizer)",
)
def test_nothing_is_left(submission: Submission, rng: Rng) -> None:
    seen = submission.observe("step_within", batch=unequal_batch(rng, FRAMES), budget=12 * MIB, seed=rng.seed())
    expect(ending(seen), "what became of a step in 12 MiB").equals("one update")
    expect(seen["left"], "the number of other bytes left after a step").at_most(16 * 1024)


@check(
    kind="invariant",
    title="Model and optimizer are unchanged",
    property="The policy must have the base policy's trained parameters, with the same names and shapes, and the optimizer its settings.",
    instrument="debugkit.check(policy, batch, select=['DK113'])",
)
def test_it_is_the_same_model(submission: Submission, rng: Rng) -> None:
    expect_stock_parameters(submission)
    seen = submission.observe("step_within", batch=unequal_batch(rng, 2), budget=100 * MIB, seed=rng.seed())
    for name, value in OPTIMIZER.items():
        expect(seen["optimizer"][name], f"the optimizer's {name}").equals(value)


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


ROOMY = f"test_gradient_is_the_whole_batchs/the step of {FRAMES} frames, in 100.0 MiB"


@wrong_fix(
    "one_frame_at_a_time",
    says="It fits, but one frame at a time: thirty-two forward passes where two would be enough. Why did halving not find a size that fits?",
)
def recognise_one_frame(evidence: Mapping[str, Any]) -> bool:
    sizes = [evidence[f"test_as_few_micro_batches_as_fit/the micro-batches in {budget} MiB"] for budget in FITS]
    # Steps of other checks too: a size that the module keeps from a batch of one frame gives single frames only later.
    steps = [evidence[ROOMY], *(step_in(evidence, budget) for budget in FITS)]
    sizes += [[size for size, _ in step["forwards"]] for step in steps]
    return all(ran(evidence, budget) for budget in FITS) and all(set(tried) == {1} for tried in sizes)


@wrong_fix(
    "train_on_what_fits",
    says="The step fits because it leaves out the frames that do not fit: this is the gradient of a smaller batch.",
)
def recognise_dropped(evidence: Mapping[str, Any]) -> bool:
    last = [size for size, _ in step_in(evidence, SMALL)["forwards"]]
    return ran(evidence, SMALL) and last[-1] > 1 and last.count(last[-1]) * last[-1] < FRAMES


@wrong_fix(
    "checkpoint_layers_only",
    says="Checkpointing makes the step smaller, so it fits into this budget. In a smaller one it must halve again, and each attempt still starts with what the last one left behind.",
)
def recognise_checkpoint_only(evidence: Mapping[str, Any]) -> bool:
    smaller = ran(evidence, LARGE) and [size for size, _ in step_in(evidence, LARGE)["forwards"]] == [FRAMES]
    return smaller and not ran(evidence, SMALL) and keeps_leftovers(evidence) and same_gradient(evidence)


@wrong_fix(
    "one_checkpoint",
    says="Nothing is kept in the forward pass, because one checkpoint surrounds the whole model. In the backward pass all of it is recomputed at once, so the peak is what it was, and the retry still starts with the leftovers.",
)
def recognise_one_checkpoint(evidence: Mapping[str, Any]) -> bool:
    kept = evidence[ROOMY]["grown"]
    return 0 <= kept < 0.5 * MIB and not ran(evidence, LARGE) and same_gradient(evidence)


@wrong_fix(
    "empty_the_cache",
    says="empty_cache() returns memory that no tensor uses. What the failed attempt left behind is in use: something still refers to it.",
)
def recognise_empty_cache(evidence: Mapping[str, Any]) -> bool:
    seen = step_in(evidence, LARGE)
    return seen["cache"] > 0 and seen["collect"] == 0 and not ran(evidence, LARGE) and keeps_leftovers(evidence)


@wrong_fix(
    "collect_the_garbage",
    says="gc.collect() frees what nothing refers to any more. What the failed attempt left behind is still referred to, so it stays.",
)
def recognise_collect(evidence: Mapping[str, Any]) -> bool:
    return step_in(evidence, LARGE)["collect"] > 0 and not ran(evidence, LARGE) and keeps_leftovers(evidence)


@wrong_fix(
    "fewer_layers",
    says="A model with fewer layers needs less memory, and is another model. Only the memory use was supposed to change.",
)
def recognise_fewer_layers(evidence: Mapping[str, Any]) -> bool:
    missing = {name for name, _ in Policy.from_base().named_parameters()} - evidence[PARAMETERS].keys()
    last = max(int(name.split(".")[2]) for name in missing)
    whole = {name for name, _ in Policy.from_base().named_parameters() if f"layers.{last}." in name}
    return missing == {name for name in whole if name.startswith("language_model.")}


@wrong_fix(
    "lower_resolution",
    says="Images of half the resolution need less memory, and are another input. Only the memory use was supposed to change.",
)
def recognise_lower_resolution(evidence: Mapping[str, Any]) -> bool:
    return evidence[ROOMY]["blocky"] is True


PARAMETERS = "test_it_is_the_same_model/the trained parameters"


def step_in(evidence: Mapping[str, Any], budget: float) -> Mapping[str, Any]:
    """The step in this budget."""
    seen: Mapping[str, Any] = evidence[f"test_the_step_fits/the step in {budget} MiB"]
    return seen


def ran(evidence: Mapping[str, Any], budget: float) -> bool:
    """Whether the step ran in this budget."""
    return step_in(evidence, budget)["raised"] is None


def keeps_leftovers(evidence: Mapping[str, Any]) -> bool:
    """Whether the second attempt in the smaller budget began with much of what the first one had made."""
    forwards = step_in(evidence, SMALL)["forwards"]
    return len(forwards) > 1 and forwards[1][1] - forwards[0][1] > MIB


def same_gradient(evidence: Mapping[str, Any]) -> bool:
    """Whether the gradient was that of the whole batch where everything fits."""
    error = evidence[
        f"test_gradient_is_the_whole_batchs/the gradient's relative error of {FRAMES} frames, in 100.0 MiB"
    ]
    return bool(error <= 1e-4)


def ending(seen: Mapping[str, Any]) -> str:
    """What became of a step, in words."""
    if seen["raised"] is None:
        return "one update"
    last = seen["reasons"][-1] if seen["reasons"] else "no allocation had failed"
    return "torch.OutOfMemoryError" if seen["raised"] else f"an OutOfMemoryError without a message ({last})"


def reference_step(seed: int, batch: Batch) -> tuple[Policy, float]:
    """The base policy after one update of AdamW with the gradient of the whole batch, and the loss before it."""
    policy = Policy.from_base(seed=seed)
    optimizer = torch.optim.AdamW(
        policy.parameters(), lr=RATE, betas=OPTIMIZER["betas"], weight_decay=OPTIMIZER["weight_decay"]
    )
    loss = policy(**batch).loss
    loss.backward()
    optimizer.step()
    return policy, float(loss)


def moved(weights: Mapping[str, Tensor], policy: Policy, gradients: Mapping[str, Tensor | None]) -> float:
    """The largest difference from the reference's weights, where the gradient is large enough to determine the step."""
    apart = [torch.zeros(1)]
    for name, parameter in policy.named_parameters():
        gradient = gradients[name]
        # AdamW steps by the gradient's sign, and rounding alone gives one to a single entry that is zero here.
        unused = gradient is None or not gradient.any()
        clear = torch.ones_like(parameter, dtype=torch.bool) if unused else gradient.abs() > 1e-4
        apart.append((weights[name] - parameter.detach())[clear].abs().flatten())
    return float(torch.cat(apart).max())


def unequal_batch(rng: Rng, frames: int) -> Batch:
    """Frames of 1 to 4 steps each."""
    length = rng.integers(1, HORIZON + 1, frames)
    return {**random_batch(rng, frames), "action_is_pad": torch.arange(HORIZON)[None] >= length[:, None]}


def flat(gradients: Mapping[str, Tensor]) -> Tensor:
    """All gradients in one vector, sorted by name."""
    return torch.cat([gradients[name].double().flatten() for name in sorted(gradients)])
