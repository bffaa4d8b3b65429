"""Requirements for a policy that answers with action tokens. Runs in the grader's process; judges data, and never sees the code.

The reference computes one observation at a time, without its padding and without a cache. What it predicts is what the
same observation must get in every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import TOLERANCE, WORDS, expect_equal, listed, random_batch, relative_error
from labs.policy_comparison import expect_gradients_of
from labs.vla.heads import TokenHead
from labs.vla.language_model import position_ids_from_mask
from labs.vla.normalization import ActionStatistics
from labs.vla.policy import OBSERVATION_KEYS, Policy

NUMBERS, BINS, HIDDEN, PATCHES = 3, 64, 128, 16
NAMES = ("dx", "dy", "gripper")
CLEAR = 1e-3
"""The likeliest token is ahead of the next by at least this share of the logits' size: rounding cannot swap them."""
ROBOT_WIDTH = 48
BAR = 0.9

Observation = dict[str, Tensor]
Positions = Callable[[Tensor, int], Tensor]
"""The mask (B, S) of a sequence and the length of its prefix, to position ids (B, S)."""


@check(
    kind="behaviour",
    title="An observation gives the same logits in every batch",
    property="The logits of each observation must be those that it gives alone and without padding, in training and in evaluation, however much padding there is, on either side of the instruction or on both.",
    instrument="debugkit.check(policy, batch, select=['DK303', 'DK315'])",
)
def test_logits_are_those_of_each_observation_alone(submission: Submission, rng: Rng) -> None:
    measured, explained = [], []
    for size, width, side, training in (
        (5, WORDS, "right", True),
        (4, 13, "left", False),
        (1, ROBOT_WIDTH, "right", False),
        (3, 24, "both", False),
    ):
        batch, seed = padded(rng, size, width, side), rng.seed()
        seen = submission.observe("training_step", batch=batch, training=training, seed=seed)
        expect(seen["logits"], f"the logits of {size} observations").has_shape(size, NUMBERS, BINS)
        reference = Alone.from_base(seed=seed)
        wanted = reference.logits(batch)
        explained.append(reference.explanations(batch, seen["logits"]))
        measured.append((batch, seen["logits"].detach(), wanted.detach()))
        loss = F.cross_entropy(wanted.transpose(1, 2), reference.tokens(batch))
        if training:
            loss.backward()
            trained = (reference, seen["gradients"], float(seen["loss"]), float(loss.detach()))
    expect(common(explained), "how positions are counted")
    for batch, found, wanted in measured:
        for row, words in enumerate(batch["attention_mask"].sum(dim=1).tolist()):
            said = f"an instruction of {words} tokens in {batch['attention_mask'].shape[1]} columns"
            moved = relative_error(found[row], wanted[row])
            expect(moved, f"how far the logits are from those of the observation alone, for {said},").at_most(TOLERANCE)
    reference, gradients, loss, wanted_loss = trained
    expect(loss, "the loss of a batch with padding").close_to(wanted_loss, rtol=1e-4)
    expect_gradients_of(reference, gradients, "with padding")


@check(
    kind="behaviour",
    title="An observation gets the same tokens in every batch, with the cache and without",
    property="`generate` must return the likeliest tokens of each observation alone, each after those before it, whatever the padding and on whichever sides of the instruction, with the cache and without; `predict` must return their action.",
    instrument="python -c 'from policy import *; from labs.vla.dataset import *; b = collate(demonstrations(6, 1), range(6)); p = build_policy(0).eval(); print(p.generate(b), p.generate(trim(b), use_cache=False))'",
)
def test_tokens_are_those_of_each_observation_alone(submission: Submission, rng: Rng) -> None:
    measured, explained = [], {True: [], False: []}
    for size, width, side in ((6, WORDS, "right"), (5, 20, "left"), (1, ROBOT_WIDTH, "both")):
        observation, seed, weight, wanted, candidates = clear_choice(rng, size, width, side)
        for use_cache in (True, False):
            asked = {"weight": weight, "use_cache": use_cache, "seed": seed}
            seen = submission.observe("generated", observation=observation, **asked)
            expect(seen["tokens"], f"the tokens for {size} observations").has_shape(size, NUMBERS)
            explained[use_cache].append({name for name, one in candidates.items() if torch.equal(seen["tokens"], one)})
            measured.append((observation, use_cache, seen, wanted))
    for use_cache in (True, False):
        expect(common(explained[use_cache]), f"how positions are counted {cached(use_cache)}")
    for observation, use_cache, seen, wanted in measured:
        for row, words in enumerate(observation["attention_mask"].sum(dim=1).tolist()):
            said = f"an instruction of {words} tokens in {observation['attention_mask'].shape[1]} columns"
            for name, token, right in zip(NAMES, seen["tokens"][row].tolist(), wanted[row].tolist(), strict=True):
                expect(token, f"the token of {name} for {said}, {cached(use_cache)}").equals(right)
        expect_equal(seen["action"], action_of(wanted)[:, None], f"the actions {cached(use_cache)}")


@check(
    kind="invariant",
    title="A batch is computed together, and the cache is used",
    property="All rows must pass through the language model together, once for the logits and once for each generated token. With the cache, and by default, each position must be read once, without it the whole sequence each time, and generating must record no graph.",
    instrument="python -c 'from policy import *; from labs.vla.dataset import *; b = collate(demonstrations(6, 1), range(6)); p = build_policy(0).eval(); p.language_model.register_forward_pre_hook(lambda m, args, given: print(*given[\"inputs_embeds\"].shape[:2], torch.is_grad_enabled()), with_kwargs=True); p.generate(b); p.generate(b, use_cache=False)'",
)
def test_batch_is_computed_together(submission: Submission, rng: Rng) -> None:
    size, seed = rng.integer(3, 7), rng.seed()
    batch = padded(rng, size, WORDS, "right")
    batch["attention_mask"][1] = batch["attention_mask"][0]  # two of one length: fewer lengths than rows
    prefix = PATCHES + WORDS + 1
    observation, weight = {name: batch[name] for name in OBSERVATION_KEYS}, rng.normal(BINS, HIDDEN)
    most = {True: prefix + NUMBERS - 1, None: prefix + NUMBERS - 1, False: NUMBERS * prefix + 3}
    for use_cache in (True, None, False):
        seen = submission.observe("generated", observation=observation, weight=weight, use_cache=use_cache, seed=seed)
        expect(len(seen["passes"]) / size, f"the passes for each observation of a batch, {cached(use_cache)}")
        expect(len(seen["passes"]), f"the number of passes for {NUMBERS} tokens, {cached(use_cache)}").equals(NUMBERS)
        rows = [one["rows"] for one in seen["passes"]]
        expect(rows, f"the rows in each pass, {cached(use_cache)}").equals([size] * NUMBERS)
        positions = sum(one["positions"] for one in seen["passes"])
        expect(positions, f"the positions that are read, {cached(use_cache)}").at_most(most[use_cache])
        own = sum(one["positions"] for one in seen["passes_of_predict"])
        expect(own, f"the positions that `predict` reads, {cached(use_cache)}").equals(positions)
        if use_cache is False:
            expect(positions, "the positions that are read without the cache").at_least(NUMBERS * (prefix - WORDS))
        graph = any(one["graph"] for one in seen["passes"])
        expect(graph, f"whether a graph is recorded, {cached(use_cache)}").is_false()
    passes = submission.observe("training_step", batch=batch, training=True, seed=seed)["passes"]
    expect(len(passes), "the number of passes for the logits of a batch").equals(1)


@check(
    kind="invariant",
    title="A batch is as wide as its longest instruction",
    property="`trim` must remove the columns of `input_ids` and `attention_mask` that are padding in every row, and nothing else; `training_loss` must be the loss of that batch, and leave the policy in its mode.",
    instrument="python -c 'from policy import *; from labs.vla.dataset import *; print(trim(collate(demonstrations(6, 1), range(6))))'",
)
def test_batch_is_as_wide_as_its_longest_instruction(submission: Submission, rng: Rng) -> None:
    for size, width, side, training in ((4, 15, "right", True), (3, 11, "left", False), (1, 48, "right", True)):
        batch, seed = padded(rng, size, width, side, most=WORDS - 1), rng.seed()
        seen = submission.observe("trimmed_loss", batch=batch, training=training, seed=seed)
        longest = int(batch["attention_mask"].sum(dim=1).max())
        kept = slice(0, longest) if side == "right" else slice(width - longest, width)
        said = f"{size} observations in {width} columns"
        expect(sorted(seen["trimmed"]), f"the names in the trimmed batch of {said}").equals(sorted(batch))
        for name, value in batch.items():
            own = value[:, kept] if name in ("input_ids", "attention_mask") else value
            expect(seen["trimmed"][name], f"the trimmed `{name}` of {said}").equals(own)
        read = sum(one["positions"] for one in seen["passes"])
        most = PATCHES + longest + 1 + NUMBERS - 1
        expect(read, f"the positions that the training loss of {said} reads").at_most(most)
        expect(seen["loss"], f"the training loss of {said}").close_to(seen["loss_of_trimmed"], rtol=1e-4)
        expect(seen["training"], f"whether the policy is in training mode after the loss of {said}").equals(training)


@check(
    kind="invariant",
    title="The rest of the policy is the base",
    property="The checkpoint must have the base's weights, and a head for action tokens drawn from the seed.",
    instrument="python -c 'from policy import *; print(build_policy(0))'",
)
def test_rest_is_the_base(submission: Submission, rng: Rng) -> None:
    seed = rng.seed()
    wanted, found = Alone.from_base(seed=seed).state_dict(), submission.observe("stored", seed=seed)
    expect(listed(wanted.keys() ^ found.keys()), "what the checkpoint lacks or has too many").equals("nothing")
    other = {name for name, value in wanted.items() if not torch.equal(found[name], value)}
    expect(listed(other), "what differs from the base, or from a head drawn from the seed").equals("nothing")


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the logits of the first token.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    batch, seed = padded(rng, 3, WORDS, "right"), rng.seed()
    before = submission.observe("training_step", batch=batch, training=False, seed=seed)["logits"][:, 0]
    for name in ("pixel_values", "input_ids"):
        other = {**batch, name: batch[name].roll(1, dims=0)}
        moved = submission.observe("training_step", batch=other, training=False, seed=seed)["logits"][:, 0]
        expect(moved, f"the logits of the first token under another {name}").differs_from(before)


@check(
    kind="outcome",
    title="A memorised frame is answered as demonstrated, however it is asked",
    property=f"After 80 steps on 32 demonstrations, at least {BAR:.0%} of the actions must be the demonstrated ones to half a bin: in one batch, one at a time, and padded to {ROBOT_WIDTH} tokens as on the robot.",
    instrument="lab run 33",
)
def test_memorised_frames_are_answered(submission: Submission, seed: int) -> None:
    seen = submission.observe("memorised", seed=seed)
    half = ActionStatistics.tabletop_bounds().std / BINS + 1e-4
    for name, asked in (("together", "in one batch"), ("alone", "one at a time"), ("robot", "as the robot asks")):
        right = ((seen[name] - seen["wanted"]).abs() <= half).all(dim=1).double().mean()
        expect(right, f"the share of actions as demonstrated, {asked},").at_least(BAR)


LOGITS = "test_logits_are_those_of_each_observation_alone/how positions are counted"
TOKENS = "test_tokens_are_those_of_each_observation_alone/how positions are counted with the cache"
PASSES = "test_batch_is_computed_together/the passes for each observation of a batch, with the cache"
RIGHT = "the tokens that the mask keeps"
COLUMNS = "every column"
MIDDLE = "every column, with the padding before the instruction"
LATER_COLUMNS = "the tokens that the mask keeps, and after the prefix every column"
ONE_MORE = "the tokens that the mask keeps, and one more after the prefix"


@wrong_fix(
    "left_in_the_middle",
    says="The padding is now on the left of the instruction, but that is not on the left of the sequence: it is between the image and the instruction. State and instruction have the right distance now, and both are too far from the image.",
)
def recognise_left(evidence: Mapping[str, Any]) -> bool:
    return evidence[LOGITS] == MIDDLE


@wrong_fix(
    "cache_counts_columns",
    says="The prefix has the correct positions now. The tokens that are written afterwards do not: with a cache, the language model counts on from the number of columns that it holds, and those include the padding.",
)
def recognise_columns(evidence: Mapping[str, Any]) -> bool:
    return evidence.get(TOKENS) == LATER_COLUMNS


@wrong_fix(
    "one_too_far",
    says="The tokens written with a cache are one position too far. Positions begin at 0, so the first token after a prefix of n tokens is at position n.",
)
def recognise_one_more(evidence: Mapping[str, Any]) -> bool:
    return evidence.get(TOKENS) == ONE_MORE


@wrong_fix(
    "one_by_one",
    says="Each observation is computed alone, so nothing is padded, and a batch takes as long as all its observations one after another.",
)
def recognise_one_by_one(evidence: Mapping[str, Any]) -> bool:
    return evidence.get(TOKENS) == RIGHT and evidence.get(PASSES) == NUMBERS


def from_mask(mask: Tensor, _prefix: int) -> Tensor:
    """Positions that count what the mask keeps."""
    return position_ids_from_mask(mask)


def columns(mask: Tensor, _prefix: int) -> Tensor:
    """Positions that count every column."""
    return torch.arange(mask.shape[1]).expand_as(mask)


def later_columns(mask: Tensor, prefix: int) -> Tensor:
    """Positions that count every column, except in the prefix."""
    return torch.cat([from_mask(mask, 0)[:, :prefix], columns(mask, 0)[:, prefix:]], dim=1)


def one_more(mask: Tensor, prefix: int) -> Tensor:
    """Positions that count what the mask keeps, and one more after the prefix."""
    return from_mask(mask, 0) + (columns(mask, 0) >= prefix).long()


def push_right(observation: Observation) -> Observation:
    """The same observation with the padding of the instruction on its left."""
    order = observation["attention_mask"].argsort(dim=1, stable=True)
    moved = {name: observation[name].gather(1, order) for name in ("input_ids", "attention_mask")}
    return {**observation, **moved}


COUNTED: dict[str, tuple[Callable[[Observation], Observation], Positions]] = {
    RIGHT: (dict, from_mask),
    COLUMNS: (dict, columns),
    MIDDLE: (push_right, columns),
    LATER_COLUMNS: (dict, later_columns),
    ONE_MORE: (dict, one_more),
}
"""How positions may be counted: the observation as the language model gets it, and its position ids."""


class NextToken(TokenHead):
    """The head: hidden states to logits of the next token, and an embedding table for tokens."""

    def __init__(self, width: int) -> None:
        super().__init__(width, horizon=1, action_dim=1)
        self.embedding = nn.Embedding(self.bins, width)
        nn.init.normal_(self.embedding.weight, std=0.3)

    def statistics(self) -> ActionStatistics:
        return ActionStatistics.tabletop_bounds()


class Alone(Policy):
    """The reference: the base policy with action tokens, which computes one observation at a time."""

    def build_head(self) -> NextToken:
        return NextToken(self.config.width)

    def tokens(self, batch: Observation) -> Tensor:
        """The tokens (B, 3) of the first action of each chunk."""
        return self.head.encode(self.action_statistics.normalize(batch["action"][:, 0]))

    def after(self, observation: Observation, given: Tensor, positions: Positions = from_mask) -> Tensor:
        """The logits (B, T + 1, bins) after the prefix and after each of `given` (B, T)."""
        prefix, mask = self.embed_prefix(**{name: observation[name] for name in OBSERVATION_KEYS})
        mask = F.pad(mask, (0, given.shape[1]), value=1)
        sequence = torch.cat([prefix, self.head.embedding(given)], dim=1)
        hidden = self.language_model(
            inputs_embeds=sequence, attention_mask=mask, position_ids=positions(mask, prefix.shape[1])
        ).last_hidden_state
        return self.head(hidden[:, prefix.shape[1] - 1 :]).flatten(-3)

    def logits(self, batch: Observation) -> Tensor:
        """The logits (B, 3, bins) of each observation alone, given its own tokens."""
        given = self.tokens(batch)[:, :-1]
        rows = [self.after(without_padding(batch, row), given[row : row + 1]) for row in range(len(given))]
        return torch.cat(rows)

    @torch.no_grad()
    def explanations(self, batch: Observation, found: Tensor) -> set[str]:
        """Which ways of counting positions give these logits (B, 3, bins)."""
        given = self.tokens(batch)[:, :-1]
        candidates = {name: self.after(see(batch), given, positions) for name, (see, positions) in COUNTED.items()}
        return {name for name, one in candidates.items() if relative_error(found, one) < TOLERANCE}

    @torch.no_grad()
    def generated(self, observation: Observation, positions: Positions = from_mask) -> tuple[Tensor, float]:
        """The likeliest tokens (B, 3), and by which share of the logits' size they are at least ahead of the next."""
        tokens, lead = torch.zeros(len(observation["state"]), 0, dtype=torch.long), torch.inf
        for _ in range(NUMBERS):
            logits = self.after(observation, tokens, positions)[:, -1]  # (B, bins)
            best = logits.topk(2, dim=-1).values
            lead = min(lead, float((best[:, 0] - best[:, 1]).min() / logits.std()))
            tokens = torch.cat([tokens, logits.argmax(dim=-1, keepdim=True)], dim=1)
        return tokens, lead


def clear_choice(
    rng: Rng, size: int, width: int, side: str
) -> tuple[Observation, int, Tensor, Tensor, dict[str, Tensor]]:
    """An observation, a policy's seed and the last weight of its head with which each likeliest token is clear.

    Then the tokens (B, 3) of each row alone, and those that each way of counting positions gives for the batch.
    """
    while True:
        observation, seed, weight = padded(rng, size, width, side), rng.seed(), rng.normal(BINS, HIDDEN)
        del observation["action"]
        reference = Alone.from_base(seed=seed)
        with torch.no_grad():
            reference.head.mlp[-1].weight.copy_(weight)
        rows = [reference.generated(without_padding(observation, row)) for row in range(size)]
        if min(lead for _, lead in rows) > CLEAR:
            break
    candidates = {
        name: reference.generated(see(observation), positions)[0] for name, (see, positions) in COUNTED.items()
    }
    wanted = torch.cat([tokens for tokens, _ in rows])
    return observation, seed, weight, wanted, {**candidates, RIGHT: wanted}


def padded(rng: Rng, size: int, width: int, side: str, most: int = WORDS) -> Observation:
    """Observations and actions whose instructions, of 2 to `most` tokens, are padded to `width` columns.

    `side` is that of the padding: `right`, `left`, or `both`, with about as much on the left as on the right.
    """
    batch = random_batch(rng, size)
    del batch["action_is_pad"]
    words = torch.cat([torch.tensor([3]), rng.integers(2, most + 1, size - 1)])
    first = {"right": torch.zeros_like(words), "left": width - words, "both": (width - words) // 2}[side]
    columns = torch.arange(width) - first[:, None]
    batch["attention_mask"] = ((columns >= 0) & (columns < words[:, None])).long()
    batch["input_ids"] = rng.integers(2, 12, size, width)
    return batch


def without_padding(batch: Observation, row: int) -> Observation:
    """One observation of a batch, its instruction without padding."""
    alone = {name: value[row : row + 1] for name, value in batch.items()}
    kept = alone["attention_mask"][0].bool()
    return {**alone, "input_ids": alone["input_ids"][:, kept], "attention_mask": alone["attention_mask"][:, kept]}


def action_of(tokens: Tensor) -> Tensor:
    """The actions (B, 3) in environment units: each token's bin is one of 64 of the same width between the bounds."""
    return ActionStatistics.tabletop_bounds().unnormalize((tokens + 0.5) / BINS * 2 - 1)


def common(explanations: list[set[str]]) -> str:
    """The way of counting positions that explains every case; the correct one if there are several."""
    names = set.intersection(*explanations)
    return RIGHT if RIGHT in names else listed(names)


def cached(use_cache: bool | None) -> str:
    """How the tokens are generated, in words."""
    if use_cache is None:
        return "by default"
    return "with the cache" if use_cache else "without the cache"
