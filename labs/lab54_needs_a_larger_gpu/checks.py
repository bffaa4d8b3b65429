"""What training with any number of micro-batches must do. Runs in the grader's process, without the learner's code.

The reference is one update from all frames of a window in one batch, in float64, at the planned learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import close, expect_image_and_instruction_to_matter, listed, random_batch, relative_error
from labs.named_tensors import as_double
from labs.vla.policy import Policy

Batch = dict[str, Tensor]
PEAK, BETAS, WEIGHT_DECAY = 1e-3, (0.9, 0.95), 0.01
PEAKS = (1e-4, 3e-3)
"""The learning rates of an optimizer with two groups, far from each other and from PEAK."""
WARM_UP = 0.1
MAX_GRADIENT_NORM = 1.0
FRAMES = 4
LOUD = 10.0
"""Factor on the head's last layer, with which every gradient is longer than the clipping norm."""
CLOSE = 1e-5
"""Not 1e-12: Llama's RMSNorm computes in float32 even in a float64 policy."""
RATE = 1e-6
NO_GRADIENT = 1e-5
"""Relative to the largest gradient. A smaller one, such as that of a key's bias, is zero except for rounding."""
UPDATES = 80
HELD_OUT_BAR = 0.45
NOTHING = "nothing"


@check(
    kind="behaviour",
    title="Every update uses the learning rate planned for it",
    property="With 1, 4 and 16 micro-batches per update alike, update number u must use the rate LEARNING_RATE × share_of_peak(u, updates), also where the stream ends before the planned number of updates. If it goes on, update number `updates` must use the rate 0. In an optimizer whose groups have other learning rates, each group must use its own × share_of_peak(u, updates).",
    instrument="optimizer.register_step_pre_hook(lambda optimizer, *_: print(optimizer.param_groups[0]['lr']))",
)
def test_rates_follow_the_plan(submission: Submission, rng: Rng) -> None:
    length, few = 5 * rng.integer(8, 13), rng.integer(4, 8)
    cases = [(parts, length, length) for parts in (1, 4, 16)]
    cases += [(rng.integer(2, 8), few, few), (3, length, length // 2), (2, 1, 1), (1, 17, 17)]
    seen = {
        case: submission.observe("rates", parts=case[0], updates=case[1], given=case[0] * case[2]) for case in cases
    }
    for (parts, updates, _), measured in seen.items():
        if parts in (4, 16) and updates == length:
            expect(formula(measured["rates"], parts, updates), f"formula with parts={parts}")
    for (parts, updates, made), measured in seen.items():
        said = f"updates={updates}, parts={parts}"
        expect(len(measured["rates"]), f"the number of updates in {parts * made} micro-batches ({said})").equals(made)
        wanted = [planned(update, updates) for update in range(updates)]
        found = [rate / PEAK for rate in measured["rates"]]
        at = next((u for u in range(made) if abs(found[u] - wanted[u]) > RATE), made - 1)
        place = next((u for u in range(updates) if abs(found[at] - wanted[u]) <= RATE), at)
        what = f"the learning rate of update {at}, counted from 0, as a share of the largest ({said})"
        if place != at:
            what = f"the learning rate of update {at} as a share of the largest, which is planned for update {place} ({said})"
        expect(found[at], what).close_to(wanted[at], rtol=0, atol=RATE)
    parts = rng.integer(2, 5)
    groups = submission.observe("rates", parts=parts, updates=length, given=parts * length, peaks=list(PEAKS))
    sizes = sorted({len(rates) for rates in groups["rates of groups"]})
    expect(sizes, "the numbers of groups of the optimizers that step, where one with two groups was given,").equals([2])
    for number, peak in enumerate(PEAKS):
        found = torch.tensor([rates[number] / peak for rates in groups["rates of groups"]], dtype=torch.float64)
        wanted = torch.tensor([planned(update, length) for update in range(length)], dtype=torch.float64)
        what = f"the learning rates of a group, as shares of its own learning rate {peak:g} (updates={length}, parts={parts})"
        expect(found, what).has_shape(length)
        expect(found, what).close_to(wanted, rtol=0, atol=RATE)
    for parts, updates in ((1, rng.integer(4, 8)), (rng.integer(2, 5), rng.integer(4, 8))):
        longer = submission.observe("rates", parts=parts, updates=updates, given=parts * (updates + 1))["rates"]
        said = f"{parts * (updates + 1)} micro-batches (updates={updates}, parts={parts})"
        expect(len(longer), f"the number of updates in {said}").equals(updates + 1)
        what = f"the learning rate of the update after the last planned one, as a share of the largest, in {said}"
        expect(longer[-1] / PEAK, what).close_to(0.0, rtol=0, atol=RATE)
    for updates in (length, few, 1):
        shares = submission.observe("plan", updates=updates)
        for update, share in enumerate(shares or []):
            what = f"`share_of_peak({update}, {updates})`"
            expect(share, what).close_to(planned(update, updates), rtol=0, atol=RATE)


@check(
    kind="behaviour",
    title="Nothing else advances the schedule",
    property="The scheduler of `build_scheduler` must advance with its own `step` and with nothing else. After `train`, steps of the optimizer must use the learning rate that the caller has set.",
    instrument="python -c 'from policy import *; o = torch.optim.AdamW([nn.Parameter(torch.ones(1))], lr=LEARNING_RATE); s = build_scheduler(o, 8); [(print(s.get_last_lr()), o.step(), s.step()) for _ in range(8)]'",
)
def test_only_its_step_advances_the_schedule(submission: Submission, rng: Rng) -> None:
    updates = rng.integer(12, 17)
    by_hand = submission.observe("stepped_by_hand", peaks=list(PEAKS), updates=updates)
    for update, rates in enumerate(by_hand or []):
        for rate, peak in zip(rates, PEAKS, strict=True):
            what = f"the learning rate of update {update}, counted from 0, as a share of the group's own {peak:g}, in a loop that steps optimizer and scheduler once per update (updates={updates})"
            expect(rate / peak, what).close_to(planned(update, updates), rtol=0, atol=RATE)
    for parts in (1, 3):
        rate = float(rng.uniform(1, low=2e-3, high=5e-3, dtype=torch.float64))
        later = submission.observe("rates_afterwards", parts=parts, updates=4, rate=rate)
        for number, found in enumerate(later, start=1):
            what = f"the learning rate of step {number} of the optimizer after `train`, as a share of the one that was set (parts={parts})"
            expect(found / rate, what).close_to(1.0, rtol=0, atol=RATE)


@check(
    kind="behaviour",
    title="An update is made when its micro-batches are complete",
    property="There must be exactly one optimizer step after every `parts` micro-batches, none for micro-batches at the end of the stream that do not complete an update, and it must be the optimizer that was given.",
    instrument="with debugkit.watch(policy, optimizer) as run: train(policy, optimizer, stream, updates, parts)",
)
def test_one_step_per_window(submission: Submission, rng: Rng) -> None:
    for parts in (1, rng.integer(2, 6), 16):
        made, left = rng.integer(3, 6), rng.integer(1, parts) if parts > 1 else 0
        read = submission.observe("rates", parts=parts, updates=made + 1, given=made * parts + left)["read"]
        said = f"{made * parts + left} micro-batches and parts={parts}"
        wanted = [parts * (number + 1) for number in range(made)]
        expect(read, f"how many micro-batches had been read at each update, of {said}").equals(wanted)
    stream = [random_batch(rng, 1) for _ in range(4)]
    stepped = submission.observe("trained", stream=stream, updates=2, parts=2, seed=rng.seed())["stepped"]
    expect(stepped, "whether the optimizer that was given made the updates").is_true()


@check(
    kind="behaviour",
    title="An update is the one of all its frames in one batch",
    property="With any number of micro-batches, the gradient that an update uses must be that of its frames in one batch, clipped once to norm 1, and the policy must move as with that gradient.",
    instrument="debugkit.gradient_table(policy, batch)",
)
def test_updates_are_those_of_whole_batches(submission: Submission, rng: Rng) -> None:
    for parts, louder, updates in ((1, 1.0, 3), (4, LOUD, 3), (2, 1.0, 4)):
        windows = [random_batch(rng, FRAMES) for _ in range(updates)]
        stream, seed = [one for window in windows for one in pieces(window, parts)], rng.seed()
        left = [random_batch(rng, FRAMES // parts)] * (parts > 1)
        seen = submission.observe(
            "trained", stream=stream + left, updates=updates, parts=parts, seed=seed, louder=louder
        )
        moved, used, _ = reference(windows, seed, louder)
        said = f"updates={updates}, parts={parts}, the head's last layer multiplied by {louder:g}"
        expect(len(seen["used"]), f"the number of updates ({said})").equals(updates)
        for update, (found, wanted) in enumerate(zip(seen["used"], used, strict=True)):
            other = {n for n, value in found.items() if value is None or relative_error(value, wanted[n]) > CLOSE}
            expect(listed(other), f"what has another gradient in update {update} ({said})").equals(NOTHING)
        other = {name for name, value in moved.items() if not close(seen["moved"][name], value, rtol=1e-2)}
        expect(listed(other), f"what moved otherwise ({said})").equals(NOTHING)
    for parts in (1, 3):
        norms = submission.observe("rates", parts=parts, updates=4, given=4 * parts, peaks=list(PEAKS))["norms"]
        what = f"the norms of the gradients of an optimizer with two groups, of which each is longer than 1 (parts={parts})"
        expect(norms, what).close_to([MAX_GRADIENT_NORM] * 4, rtol=1e-4)


@check(
    kind="behaviour",
    title="The log has one line for each update",
    property="The log must have one line per update, numbered from 0, with the loss of all its frames before the update.",
    instrument="lab run 54",
)
def test_log_has_a_line_per_update(submission: Submission, rng: Rng) -> None:
    for parts in (1, 2, 4):
        windows = [random_batch(rng, FRAMES) for _ in range(3)]
        stream, seed = [one for window in windows for one in pieces(window, parts)], rng.seed()
        left = [random_batch(rng, 1)] * (parts > 1)
        seen = submission.observe("trained", stream=stream + left, updates=3, parts=parts, seed=seed)
        said = f"with parts={parts}"
        expect(seen["numbers"], f"the numbers of the logged updates {said}").equals([0, 1, 2])
        losses = reference(windows, seed, 1.0)[2]
        expect(seen["losses"], f"the logged losses {said}").close_to(losses, rtol=1e-4)


@check(
    kind="invariant",
    title="Modes and data stay as they were",
    property="`train` must train in training mode and leave the policy in evaluation mode, whatever mode it was in, and must not modify the micro-batches.",
    instrument="debugkit.trace_batches(policy, stream)",
)
def test_modes_and_data(submission: Submission, rng: Rng) -> None:
    for training in (True, False):
        stream = [random_batch(rng, 1) for _ in range(4)]
        seen = submission.observe("trained", stream=stream, updates=2, parts=2, seed=rng.seed(), training=training)
        before = "training" if training else "evaluation"
        expect(seen["modes"], f"whether a policy that was in {before} mode trains in training mode").equals([True])
        expect(seen["mode after"], f"whether it is in training mode afterwards ({before} mode before)").is_false()
        given = [as_double(micro_batch) for micro_batch in stream]
        changed = {
            name
            for old, new in zip(given, seen["stream"], strict=True)
            for name in old
            if not old[name].equal(new[name])
        }
        expect(listed(changed), "what training changed in the micro-batches").equals(NOTHING)


@check(
    kind="invariant",
    title="The policy and its optimizer are built as before",
    property="`build_policy` must give the pretrained base with a head drawn from the seed, and `build_optimizer` AdamW over all its parameters with the settings of the file, without changing a mode.",
    instrument="python -c 'from policy import *; print(build_optimizer(build_policy(0)))'",
)
def test_settings_are_those_of_the_file(submission: Submission, rng: Rng) -> None:
    seed = rng.seed()
    seen = submission.observe("settings", seed=seed)
    base = Policy.from_base(seed=seed)
    other = {
        name
        for name, value in base.state_dict().items()
        if name not in seen["weights"] or not close(seen["weights"][name], value, rtol=1e-6)
    }
    expect(listed(other), "what differs from the base with a head of this seed").equals(NOTHING)
    expect(seen["optimizer"], "the optimizer").equals("AdamW")
    names = [name for group in seen["groups"] for name in group["names"]]
    expect(sorted(names), "the parameters of the optimizer").equals(sorted(n for n, _ in base.named_parameters()))
    for name, value in {"lr": PEAK, "betas": BETAS, "weight_decay": WEIGHT_DECAY}.items():
        for group in seen["groups"]:
            found = tuple(group[name]) if name == "betas" else group[name]
            expect(found, f"the optimizer's {name}").equals(value)
    expect(seen["modes"], "whether vision tower and policy are in training mode after build_optimizer").equals(
        [False, True]
    )


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
    title="The policy learns with four micro-batches",
    property=f"After {UPDATES} updates of 4 micro-batches, the loss on new frames must be below {HELD_OUT_BAR}.",
    instrument="lab run 54",
)
def test_policy_learns_with_micro_batches(submission: Submission, seed: int) -> None:
    loss = submission.observe("held_out_loss", seed=seed, updates=UPDATES, parts=4)
    expect(float(loss), "the loss on new frames").below(HELD_OUT_BAR)


@wrong_fix(
    "constant_rate",
    says="Every update now uses the same learning rate, whatever their number. That is the same for 1 and for 16 micro-batches, but it is no longer the plan: without a warm-up and without a decay.",
)
def recognise_constant(evidence: Mapping[str, Any]) -> bool:
    return formulas(evidence) == {"constant_rate"}


@wrong_fix(
    "stretched",
    says="The schedule still advances with every micro-batch, along a plan that is as many times as long. Its rates are close to the planned ones and not equal to them: they still depend on the number of micro-batches, as does the place at which a resumed training would continue.",
)
def recognise_stretched(evidence: Mapping[str, Any]) -> bool:
    return formulas(evidence) == {"stretched"}


@wrong_fix(
    "stretched_and_stepped_per_update",
    says="These are two fixes, and together they are one too many: the schedule now advances once per update, along a plan of as many steps as there are micro-batches. With 16, the last update is still in the warm-up.",
)
def recognise_both(evidence: Mapping[str, Any]) -> bool:
    return formulas(evidence) == {"stretched_and_stepped_per_update"}


@wrong_fix(
    "one_update_early",
    says="The schedule advances once per update, but before the update is made: each update uses the rate of the next one, and the first rate is used by none.",
)
def recognise_early(evidence: Mapping[str, Any]) -> bool:
    return formulas(evidence) == {"one_update_early"}


@wrong_fix(
    "never_stepped",
    says="The schedule does not advance during training. Every update uses the first rate of the warm-up.",
)
def recognise_never(evidence: Mapping[str, Any]) -> bool:
    return formulas(evidence) == {"never_stepped"}


def formulas(evidence: Mapping[str, Any]) -> set[str]:
    """The formulas that explain the learning rates with 4 and with 16 micro-batches."""
    prefix = "test_rates_follow_the_plan/formula with "
    return {str(value) for name, value in evidence.items() if name.startswith(prefix)}


def formula(rates: Sequence[float], parts: int, updates: int) -> str:
    """Which way of stepping the schedule explains the learning rates of the updates, or "another"."""
    last = [parts * update + parts - 1 for update in range(updates)]
    candidates = {
        "per_update": [planned(update, updates) for update in range(updates)],
        "per_micro_batch": [planned(number, updates) for number in last],
        "stretched": [planned(number, parts * updates) for number in last],
        "stretched_and_stepped_per_update": [planned(update, parts * updates) for update in range(updates)],
        "one_update_early": [planned(update + 1, updates) for update in range(updates)],
        "never_stepped": [planned(0, updates)] * updates,
        "constant_rate": [rates[0] / PEAK if rates else 0.0] * updates,
    }
    for name, wanted in candidates.items():
        if len(rates) == updates and all(abs(r / PEAK - w) <= RATE for r, w in zip(rates, wanted, strict=True)):
            return name
    return "another"


def planned(update: int, updates: int) -> float:
    """The planned learning rate of an update as a share of the largest."""
    warm_up = max(1, round(WARM_UP * updates))
    if update < warm_up:
        return (update + 1) / warm_up
    progress = min(1.0, (update + 1 - warm_up) / (updates + 1 - warm_up))
    return (1 + math.cos(math.pi * progress)) / 2


def pieces(window: Batch, parts: int) -> list[Batch]:
    """A window's frames in `parts` micro-batches."""
    return [{name: values[rows] for name, values in window.items()} for rows in torch.arange(FRAMES).chunk(parts)]


def reference(windows: Sequence[Batch], seed: int, louder: float) -> tuple[dict[str, Tensor], list[Any], Tensor]:
    """How far each parameter with a gradient moves in an update from each window, all gradients used, and the losses."""
    policy = Policy.from_base(seed=seed).double().train()
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(louder)
    start = {name: value.detach().clone() for name, value in policy.named_parameters()}
    optimizer = torch.optim.AdamW(policy.parameters(), lr=PEAK, betas=BETAS, weight_decay=WEIGHT_DECAY)
    used, losses = [], []
    for update, window in enumerate(windows):
        optimizer.param_groups[0]["lr"] = PEAK * planned(update, len(windows))
        loss = policy(**as_double(window)).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRADIENT_NORM)
        used.append({name: value.grad.clone() for name, value in policy.named_parameters()})
        optimizer.step()
        losses.append(loss.detach())
    least = NO_GRADIENT * max(value.norm() for value in used[-1].values())
    moved = {name: p.detach() - start[name] for name, p in policy.named_parameters() if used[-1][name].norm() > least}
    return moved, used, torch.stack(losses)
