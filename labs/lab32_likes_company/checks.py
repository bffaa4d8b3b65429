"""Requirements for a policy that learns plans of many lengths. Runs in the grader's process; judges data, and never sees the code.

The reference reads one plan at a time and counts every word and every <end> once. A loss's target is read from its
gradient: of all logits of a position, only the target's has a negative gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import random_batch
from labs.vla.dataset import observation_batch, sample_moments
from labs.vla.heads import ActionHead
from labs.vla.policy import Policy, PolicyConfig

PLAN_WORDS = ("left", "right", "up", "down", "grasp", "<end>", "<start>")
LEFT, RIGHT, UP, DOWN, GRASP, END, START = range(len(PLAN_WORDS))
STEP, LONGEST_PLAN, LONGEST_SAID = 0.2, 9, 16
WIDTH = 64
WORDS_BAR = 0.9
ROUNDING = {"rtol": 1e-4, "atol": 1e-5}
NOISE = 1e-3
"""The keys' biases have a gradient only by rounding: less than this share of the longest of all."""


@check(
    kind="behaviour",
    title="The loss is the mean over the plans' words",
    property="The loss must be the mean cross-entropy over every word and every <end> of the batch's plans and nothing else, in training and in evaluation, for one plan and for several.",
    instrument="debugkit.check(policy, batch, select=['DK309'])",
)
def test_loss_equals_the_reference(submission: Submission, rng: Rng) -> None:
    for size, training in ((6, True), (1, True), (rng.integer(2, 6), False)):
        plans, observation, seed = random_plans(rng, size), observed(rng, size), rng.seed()
        seen = submission.observe("training_step", observation=observation, plans=plans, training=training, seed=seed)
        losses = reference_losses(observation, plans, seed)
        if size == 6:
            expect(formula(float(seen["loss"]), losses, seen["logits"], plans), "formula")
        of = f"of {counted(size)} in {'training' if training else 'evaluation'}"
        logits = Planner.from_base(seed=seed).logits(observation, plans)[0].detach()
        expect(seen["returned"][0, : len(logits)], f"the first plan's logits returned with the loss {of}").close_to(
            logits, rtol=1e-3, atol=1e-4
        )
        expect(seen["loss"], f"the loss {of}").close_to(float(torch.cat(losses).mean()), **ROUNDING)


@check(
    kind="behaviour",
    title="The targets are the plans",
    property="In each row the loss's targets must be the words of the plan and then <end>, with no target after that, and the gradient of every parameter must be that of the mean over these targets.",
    instrument="debugkit.check(policy, batch, select=['DK307', 'DK309'])",
)
def test_targets_are_the_plans(submission: Submission, rng: Rng) -> None:
    plans, observation, seed = random_plans(rng, 5), observed(rng, 5), rng.seed()
    seen = submission.observe("training_step", observation=observation, plans=plans, training=True, seed=seed)
    asked = targets_in(seen["gradient"])
    for row, words in enumerate(plans):
        found = asked[row] if row < len(asked) else []
        expect(in_words(found), f"the targets of row {row}").equals(in_words([*words, END]))
    planner = Planner.from_base(seed=seed)
    torch.cat(planner.losses(observation, plans)).mean().backward()
    wanted = {name: value.grad for name, value in planner.named_parameters() if value.grad is not None}
    without = [name for name in wanted if seen["gradients"].get(name) is None]
    expect(without, "the list of parameters without a gradient").equals([])
    smallest = NOISE * max(float(value.norm()) for value in wanted.values())
    others = [
        name for name, value in wanted.items() if distance(seen["gradients"][name], value, at_least=smallest) > 1e-2
    ]
    expect(others, "the list of parameters with another gradient than that of the mean over the words").equals([])


@check(
    kind="invariant",
    title="A plan gives the same logits in every batch",
    property="The logits along a plan must be those that the plan gives alone, however long the other plans of the batch are, for each of `plan_ids`, whatever the labels; without labels there must be no loss.",
    instrument="debugkit.check(policy, batch, select=['DK303'])",
)
def test_plan_reads_the_same_in_every_batch(submission: Submission, rng: Rng) -> None:
    observation, plans, seed = observed(rng, 4), random_plans(rng, 4), rng.seed()
    planner = Planner.from_base(seed=seed)
    for training in (True, False):
        seen = submission.observe("logits", observation=observation, plans=plans, training=training, seed=seed)
        expect(seen["loss"], "the loss without labels").equals(None)
        expect(seen["logits"], "the logits").has_shape(4, max(map(len, plans)) + 1, len(PLAN_WORDS))
        for row, (found, wanted) in enumerate(zip(seen["logits"], planner.logits(observation, plans), strict=True)):
            where = f"row {row} (plan of {words_in(len(plans[row]))})"
            expect(found[: len(wanted)], f"the logits of {where}").close_to(wanted.detach(), rtol=1e-3, atol=1e-4)
    expect_part_of_a_batch(submission, rng)


@check(
    kind="invariant",
    title="A batch holds the plans and their masks",
    property="A plan must go sideways first, then along the table, one word for each 20 cm, then say grasp; `plan_ids` must be <start> and the plan, `labels` the plan and <end>, and the mask must cover both and no padding.",
    instrument="python -c 'from policy import *; print(collate_plans([[0, 4], [0, 0, 0, 4]]))'",
)
def test_batch_holds_the_plans(submission: Submission, rng: Rng) -> None:
    seed, count = rng.seed(), 24
    moments = sample_moments(np.random.default_rng(seed), count)
    ways = [(arm, block) for arm, block in zip(moments.arm, moments.target_block, strict=True)]
    seen = submission.observe("batch", seed=seed, count=count)
    for row, (arm, block) in enumerate(ways):
        of = f"the plan from {place(arm)} to {place(block)}"
        expect(in_words(seen["plans"][row]), of).equals(in_words(plan_of(arm, block)))
    wanted = observation_batch(moments.images(), moments.state(), moments.instruction)
    expect({name: seen["batch"].get(name) for name in wanted}, "the observations of the batch").close_to(wanted)
    expect_collated(seen["batch"], [plan_of(arm, block) for arm, block in ways])
    expect(submission.observe("vocabulary"), "the words of the plans").equals(list(PLAN_WORDS))
    stored = submission.observe("stored", seed=seed)
    reference = Planner.from_base(seed=seed)
    expect(stored["head"], "horizon and action dimensions of the head").equals(
        [reference.head.horizon, reference.head.action_dim]
    )
    expect(stored["names"], "the names in the checkpoint").equals(sorted(reference.state_dict()))
    for size in (1, 5):
        plans = random_plans(rng, size)
        expect_collated(submission.call("collate_plans", plans), plans)


@check(
    kind="invariant",
    title="The policy says its most likely words",
    property="`say` must decode one word at a time, never <start>, until <end>, which it leaves out, or until there are 16 words.",
    instrument="python -c 'from policy import *; from labs.vla.dataset import *; print(build_policy(0).eval().say(collate(demonstrations(4, 1), range(4))))'",
)
def test_policy_says_the_likeliest_words(submission: Submission, rng: Rng) -> None:
    observation, seed = observed(rng, 4), rng.seed()
    for word, likelier in ((END, 8.0), (END, -50.0), (START, 50.0)):
        weight, bias = rng.normal(len(PLAN_WORDS), WIDTH), torch.zeros(len(PLAN_WORDS))
        bias[word] = likelier
        what = f"if {PLAN_WORDS[word]} is {'more' if likelier > 0 else 'less'} likely"
        said = submission.observe("said", observation=observation, weight=weight, bias=bias, seed=seed)
        planner = Planner.from_base(seed=seed)
        with torch.no_grad():
            planner.plan_head.weight.copy_(weight)
            planner.plan_head.bias.copy_(bias)
            wanted = planner.said(observation)
        for row, (words, others) in enumerate(zip(said, wanted, strict=True)):
            expect(in_words(words), f"the plan said for row {row} {what}").equals(in_words(others))


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the logits of the plan's first word.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    observation, plans, seed = observed(rng, 3), random_plans(rng, 3), rng.seed()
    asked = {"plans": plans, "training": False, "seed": seed}
    before = submission.observe("logits", observation=observation, **asked)["logits"][:, 0]
    for name in ("pixel_values", "input_ids"):
        other = {**observation, name: observation[name].roll(1, dims=0)}
        moved = submission.observe("logits", observation=other, **asked)["logits"][:, 0]
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
    "end_never_learnt",
    says="The padding is ignored now, but so is the plan's own <end>: the policy is never trained to stop.",
)
def recognise_ignored_end(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the mean without <end>"


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
    return evidence[FORMULA] == "the mean over the longest plan"


@wrong_fix(
    "mean_of_rows",
    says="Each plan has the same weight here, whatever its length. That is a different loss: a word of a short plan weighs more than one of a long plan.",
)
def recognise_mean_of_rows(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the mean of the plans' means"


FORMULA = "test_loss_equals_the_reference/formula"


class Planner(Policy):
    """The reference: the base policy that reads a plan, one at a time, so that nothing is ever padded."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.plan_embedding = nn.Embedding(len(PLAN_WORDS), self.config.width)
        nn.init.normal_(self.plan_embedding.weight, std=0.3)
        self.plan_head = nn.Linear(self.config.width, len(PLAN_WORDS))

    def build_head(self) -> ActionHead:
        return ActionHead(self.config.horizon, self.config.action_dim)

    def logits(self, observation: dict[str, Tensor], plans: list[list[int]]) -> list[Tensor]:
        """For each plan, the logits (T, words) after <start> and after each word."""
        found = []
        for row, words in enumerate(plans):
            prefix, mask = self.embed_prefix(**{name: value[row : row + 1] for name, value in observation.items()})
            ids = torch.tensor([[START, *words]])
            hidden = self.run_language_model(
                torch.cat([prefix, self.plan_embedding(ids)], dim=1), torch.cat([mask, torch.ones_like(ids)], dim=1)
            )
            found.append(self.plan_head(hidden[0, prefix.shape[1] :]))
        return found

    def losses(self, observation: dict[str, Tensor], plans: list[list[int]]) -> list[Tensor]:
        """For each plan, the loss of each word and of its <end>."""
        logits = self.logits(observation, plans)
        targets = [torch.tensor([*words, END]) for words in plans]
        return [F.cross_entropy(*pair, reduction="none") for pair in zip(logits, targets, strict=True)]

    def said(self, observation: dict[str, Tensor]) -> list[list[int]]:
        """For each observation, the likeliest words until <end>."""
        plans: list[list[int]] = [[] for _ in observation["state"]]
        for _ in range(LONGEST_SAID):
            likeliest = [int(row[-1, :START].argmax()) for row in self.logits(observation, plans)]
            plans = [[*words, word] for words, word in zip(plans, likeliest, strict=True)]
        return [words[: words.index(END)] if END in words else words for words in plans]


def reference_losses(observation: dict[str, Tensor], plans: list[list[int]], seed: int) -> list[Tensor]:
    """For each plan, the loss of each word and of its <end> under a fresh policy."""
    with torch.no_grad():
        return Planner.from_base(seed=seed).losses(observation, plans)


def plan_of(arm: NDArray, block: NDArray) -> list[int]:
    """The plan of the lesson: sideways, along the table, grasp."""
    sideways, along = (round(float(way) / STEP) for way in block - arm)
    return [*[RIGHT if sideways > 0 else LEFT] * abs(sideways), *[DOWN if along > 0 else UP] * abs(along), GRASP]


def expect_part_of_a_batch(submission: Submission, rng: Rng) -> None:
    """The first plans of a batch whose longest plan is another one: every column has logits, whatever the labels."""
    observation, plans, seed = observed(rng, 3), random_plans(rng, 3), rng.seed()
    longest = [LEFT] * (LONGEST_PLAN + rng.integer(1, 4))
    hidden = rng.boolean(3, len(longest) + 1)
    for row, words in enumerate(plans):
        hidden[row, rng.integer(0, len(words))] = True  # a word that is not the last one
        hidden[row, len(words)] = False
    seen = submission.observe(
        "part_of_a_batch", observation=observation, plans=[*plans, longest], hidden=hidden, seed=seed
    )
    planner = Planner.from_base(seed=seed)
    for how in ("with the labels", "without labels", "with labels of which some words are ignored"):
        what = f"the logits of the first 3 plans of a batch of {counted(4)}, {how},"
        expect(seen[how], what).has_shape(3, len(longest) + 1, len(PLAN_WORDS))
        for row, wanted in enumerate(planner.logits(observation, plans)):
            where = f"row {row} (plan of {words_in(len(plans[row]))} in {len(longest) + 1} columns), {how},"
            expect(seen[how][row, : len(wanted)], f"the logits of {where}").close_to(
                wanted.detach(), rtol=1e-3, atol=1e-4
            )
    wanted = float(torch.cat(reference_losses(observation, plans, seed)).mean())
    expect(seen["loss"], f"the loss of the first 3 plans of a batch of {counted(4)}").close_to(wanted, **ROUNDING)


def expect_collated(batch: dict[str, Tensor], plans: list[list[int]]) -> None:
    """Each row must be one plan, with the mask over it; what is beside the mask may be anything."""
    shape = (len(plans), max(map(len, plans)) + 1)
    for name in ("plan_ids", "plan_mask", "labels"):
        expect(batch.get(name), f"the {name} of a batch of {counted(len(plans))}").has_shape(*shape)
    mask = torch.tensor([[int(at <= len(words)) for at in range(shape[1])] for words in plans])
    expect(batch["plan_mask"], f"the plan_mask of a batch of {counted(len(plans))}").equals(mask)
    for row, words in enumerate(plans):
        ids, labels = (batch[name][row, : len(words) + 1].tolist() for name in ("plan_ids", "labels"))
        expect(in_words(ids), f"plan_ids of row {row}").equals(in_words([START, *words]))
        expect(in_words(labels), f"labels of row {row}").equals(in_words([*words, END]))


def in_words(ids: list[int]) -> str:
    """Word ids as the words of a plan; what is no word stays a number."""
    return " ".join(PLAN_WORDS[one] if one in range(len(PLAN_WORDS)) else str(one) for one in ids) or "nothing"


def counted(count: int) -> str:
    """1 plan, 2 plans."""
    return "1 plan" if count == 1 else f"{count} plans"


def words_in(count: int) -> str:
    """1 word, 2 words."""
    return "1 word" if count == 1 else f"{count} words"


def place(position: NDArray) -> str:
    """A position on the table in words."""
    return f"({float(position[0]):.2f}, {float(position[1]):.2f})"


def random_plans(rng: Rng, size: int) -> list[list[int]]:
    """Plans of random words and different lengths, each with at least one `left`."""
    lengths = [1 + int(length) for length in rng.permutation(LONGEST_PLAN)[:size]]
    plans = [rng.integers(0, END, length).tolist() for length in lengths]
    for words in plans:
        words[rng.integer(0, len(words))] = 0
    return plans


def observed(rng: Rng, size: int) -> dict[str, Tensor]:
    """Observations: a random batch without its actions."""
    batch = {name: value for name, value in random_batch(rng, size).items() if not name.startswith("action")}
    batch["attention_mask"][0, 6:] = 0  # a shorter instruction
    return batch


def targets_in(gradient: Tensor) -> list[list[int]]:
    """The loss's targets in each row: the logits with a negative gradient, at positions with any gradient."""
    likelier, counts = gradient.argmin(dim=-1), (gradient != 0).any(dim=-1)
    return [row[kept].tolist() for row, kept in zip(likelier, counts, strict=True)]


def distance(gradient: Tensor, wanted: Tensor, *, at_least: float) -> float:
    """How far a gradient is from the one wanted, relative to its length, or to `at_least` if it is shorter."""
    if gradient.shape != wanted.shape:
        return float("inf")
    return float((gradient.double() - wanted.double()).norm()) / max(float(wanted.norm()), at_least)


def formula(measured: float, rows: list[Tensor], logits: Tensor, plans: list[list[int]]) -> str:
    """Which formula explains the loss of plans that all differ in length, given the loss of each word and <end>.

    `logits` (B, T, words) are the submission's, of which only those of the padding are used.
    """
    words = [torch.tensor([*words, END]) for words in plans]
    padding = [logits[row, len(one) :].float() for row, one in enumerate(words)]
    every, joined, positions = torch.cat(rows), torch.cat(words), logits.shape[0] * logits.shape[1]
    as_end = [F.cross_entropy(one, torch.full((len(one),), END), reduction="sum") for one in padding]
    candidates = {
        "the mean over the plans' words": every.mean(),
        "the mean without the words that are 0": every[joined != LEFT].mean(),
        "the mean without <end>": every[joined != END].mean(),
        "the mean over all positions, with <end> as the padding's target": (every.sum() + sum(as_end)) / positions,
        "the plans' words, divided by all positions": every.sum() / positions,
        "the mean over the longest plan": max(rows, key=len).mean(),
        "the mean of the plans' means": torch.stack([one.mean() for one in rows]).mean(),
    }
    for name, value in candidates.items():
        if abs(measured - float(value)) <= 1e-4 * abs(float(value)) + 1e-6:
            return name
    return "another"
