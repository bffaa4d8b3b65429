"""Requirements for a policy that learns plans of many lengths. Runs in the grader's process; judges data, and never sees the code.

The reference counts every word of every plan once and nothing else. A loss's target is read from its gradient: of all
logits of a position, only the target's has a negative gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import random_batch

WORDS, END, LONGEST_PLAN = 7, 5, 9
WORDS_BAR = 0.9


@check(
    kind="behaviour",
    title="The loss is the mean over the plans' words",
    property="The loss must be the mean cross-entropy over every word and every <end> of the batch's plans, and nothing else.",
    instrument="debugkit.check(policy, batch, select=['DK309'])",
)
def test_loss_equals_the_reference(submission: Submission, rng: Rng) -> None:
    for size in (6, 2, rng.integer(3, 6)):
        plans = random_plans(rng, size)
        seen = submission.observe("training_step", observation=observed(rng, size), plans=plans, seed=rng.seed())
        expect(seen["logits"], "the logits").has_shape(size, max(map(len, plans)) + 1, WORDS)
        losses = F.cross_entropy(seen["logits"].double().transpose(1, 2), padded(plans), reduction="none")
        real = mask(plans)
        if size == 6:
            expect(formula(float(seen["loss"]), losses, real, padded(plans)), "formula")
        expect(seen["loss"], f"the loss of {size} plans").close_to(float(losses[real].mean()), rtol=1e-4, atol=1e-5)


@check(
    kind="behaviour",
    title="The targets are the plans",
    property="In each row the loss's targets must be the words of the plan and then <end>, with no target after that.",
    instrument="debugkit.check(policy, batch, select=['DK307', 'DK309'])",
)
def test_targets_are_the_plans(submission: Submission, rng: Rng) -> None:
    plans = random_plans(rng, 5)
    seen = submission.observe("training_step", observation=observed(rng, 5), plans=plans, seed=rng.seed())
    expect(seen["gradient"], "the gradient of the logits").has_shape(5, max(map(len, plans)) + 1, WORDS)
    asked = targets_in(seen["gradient"])
    expect(asked, "the targets of each row (-1: none)")
    for row, (words, found) in enumerate(zip(plans, asked, strict=True)):
        expect(found, f"the targets of row {row} (-1: none)").equals(
            [*words, END] + [-1] * (len(found) - len(words) - 1)
        )
    expect(seen["without"], "the list of parameters without a gradient").equals([])


@check(
    kind="behaviour",
    title="The other plans of a batch do not change a plan's loss",
    property="The loss of a batch must be the mean of the losses that its plans have alone, weighted by their numbers of words.",
    instrument="debugkit.check(policy, batch, select=['DK309'])",
)
def test_batch_is_the_weighted_mean_of_its_rows(submission: Submission, rng: Rng) -> None:
    for size in (2, 4):
        plans = random_plans(rng, size)
        seen = submission.observe("losses", observation=observed(rng, size), plans=plans, seed=rng.seed())
        counts = [len(words) + 1 for words in plans]
        wanted = sum(count * loss for count, loss in zip(counts, seen["alone"], strict=True)) / sum(counts)
        expect(seen["together"], f"the loss of {size} plans together").close_to(wanted, rtol=1e-4, atol=1e-5)


@check(
    kind="invariant",
    title="A plan gives the same logits in every batch",
    property="The logits along a plan must not depend on how long the other plans of the batch are.",
    instrument="debugkit.check(policy, batch, select=['DK303'])",
)
def test_plan_reads_the_same_in_every_batch(submission: Submission, rng: Rng) -> None:
    observation, plans, seed = observed(rng, 3), random_plans(rng, 3), rng.seed()
    together = submission.observe("logits", observation=observation, plans=plans, seed=seed)
    for row, words in enumerate(plans):
        own = {name: value[row : row + 1] for name, value in observation.items()}
        alone = submission.observe("logits", observation=own, plans=[words], seed=seed)
        expect(together[row, : len(words) + 1], f"the logits of row {row}").close_to(alone[0], rtol=1e-3, atol=1e-4)


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the logits of the plan's first word.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    observation, plans, seed = observed(rng, 3), random_plans(rng, 3), rng.seed()
    before = submission.observe("logits", observation=observation, plans=plans, seed=seed)[:, 0]
    expect(before, "the logits of the first word").has_shape(3, WORDS)
    for name in ("pixel_values", "input_ids"):
        other = {**observation, name: observation[name].roll(1, dims=0)}
        moved = submission.observe("logits", observation=other, plans=plans, seed=seed)[:, 0]
        expect(moved, f"the logits under another {name}").differs_from(before)


@check(
    kind="outcome",
    title="The policy can memorise a batch of plans",
    property=f"After 100 steps on 16 plans, at least {WORDS_BAR:.0%} of the next words must be correct, and also of the words `left` alone.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_planner_learns_by_heart(submission: Submission, seed: int) -> None:
    after = submission.observe("learnt_by_heart", seed=seed)
    right = after["right"].double()
    expect(right[after["wanted"] == 0].mean(), "the share of `left` predicted correctly").at_least(WORDS_BAR)
    expect(right.mean(), "the share of next words predicted correctly").at_least(WORDS_BAR)


@wrong_fix(
    "ignore_zero",
    says="The padding is ignored now, but so is every `left` in a plan: 0 is a word. The policy is never trained to go left.",
)
def recognise_ignored_word(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the mean without the words that are 0"


@wrong_fix(
    "pad_with_end",
    says="<end> is a word too. After each plan it is the target again and again, and those positions still count.",
)
def recognise_end(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the mean over all positions, with <end> as the padding's target"


@wrong_fix(
    "mask_then_mean",
    says="The padding's losses are zero now, but still counted: the sum is correct, the divisor is not.",
)
def recognise_diluted(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the plans' words, divided by all positions"


@wrong_fix(
    "longest_rows_only",
    says="Rows with padding are left out, so only the longest plan of each batch is trained, and shorter ones are ignored.",
)
def recognise_longest(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the mean over the longest plans"


@wrong_fix(
    "mean_of_rows",
    says="Each plan has the same weight here, whatever its length. That is a different loss: a word of a short plan weighs more than one of a long plan.",
)
def recognise_mean_of_rows(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the mean of the plans' means"


FORMULA = "test_loss_equals_the_reference/formula"


def random_plans(rng: Rng, size: int) -> list[list[int]]:
    """Plans of random words and different lengths, each with at least one `left`."""
    lengths = [1 + int(length) for length in rng.permutation(LONGEST_PLAN)[:size]]
    plans = [rng.integers(0, END, length).tolist() for length in lengths]
    for words in plans:
        words[rng.integer(0, len(words))] = 0
    return plans


def observed(rng: Rng, size: int) -> dict[str, Tensor]:
    """Observations: a random batch without its actions."""
    return {name: value for name, value in random_batch(rng, size).items() if not name.startswith("action")}


def padded(plans: list[list[int]]) -> Tensor:
    """The plans and their <end> in one tensor (B, T), padded with <end>."""
    longest = max(map(len, plans)) + 1
    return torch.tensor([words + [END] * (longest - len(words)) for words in plans])


def mask(plans: list[list[int]]) -> Tensor:
    """True where (B, T) holds a plan's word or its own <end>."""
    longest = max(map(len, plans)) + 1
    return torch.arange(longest)[None] <= torch.tensor([len(words) for words in plans])[:, None]


def targets_in(gradient: Tensor) -> list[list[int]]:
    """The loss's target at each position: the logit with the negative gradient, or -1 if all gradients are zero."""
    asked = gradient.argmin(dim=-1).masked_fill((gradient == 0).all(dim=-1), -1)
    return asked.tolist()


def formula(measured: float, losses: Tensor, real: Tensor, words: Tensor) -> str:
    """Which formula explains the loss of plans that all differ, given each position's loss (B, T) for word or <end>."""
    longest = real.all(dim=1)
    rows = (losses * real).sum(dim=1) / real.sum(dim=1)
    candidates = {
        "the mean over the plans' words": losses[real].mean(),
        "the mean without the words that are 0": losses[real & (words != 0)].mean(),
        "the mean over all positions, with <end> as the padding's target": losses.mean(),
        "the plans' words, divided by all positions": (losses * real).sum() / real.numel(),
        "the mean over the longest plans": losses[longest].mean(),
        "the mean of the plans' means": rows.mean(),
    }
    for name, value in candidates.items():
        if abs(measured - float(value)) <= 1e-4 * abs(float(value)) + 1e-6:
            return name
    return "another"
