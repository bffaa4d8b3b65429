"""Requirements for a policy that writes its actions as text. Runs in the grader's process; judges data, and never sees the code.

The reference reads one text at a time, without padding, and generates without a cache. It counts every character and
every <end> once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import WORDS, listed, random_batch, relative_error
from labs.vla.dataset import demonstrations, observation_batch
from labs.vla.heads import ActionHead
from labs.vla.policy import Policy, PolicyConfig

VOCABULARY = (*"0123456789- oc", "<unk>", "<bos>", "<end>")
UNK, BOS, END = range(14, 17)
LONGEST = 16
WIDTH = 64
ROUNDING = {"rtol": 1e-4, "atol": 1e-5}
NOISE = 1e-3
"""The keys' biases have a gradient only by rounding: less than this share of the longest of all."""
BAR = 0.9
LONGEST_ANSWER = 12
"""The longest text and its <end>."""


@check(
    kind="behaviour",
    title="The loss is the mean over the tokens of the texts",
    property="The loss must be the mean cross-entropy over every character and every <end> of the batch's texts and nothing else, in training and in evaluation, for one text and for several.",
    instrument="debugkit.overfit_one_batch(policy, batch)",
)
def test_loss_equals_the_reference(submission: Submission, rng: Rng) -> None:
    measured, explained = [], set()
    for size, training in ((6, True), (7, True), (1, True), (rng.integer(2, 6), False)):
        texts, observation, seed = random_texts(rng, size), observed(rng, size), rng.seed()
        seen = submission.observe("training_step", observation=observation, texts=texts, training=training, seed=seed)
        writer = Writer.from_base(seed=seed)
        with torch.no_grad():
            losses = writer.losses(observation, texts)
            if size >= 6:
                hidden = writer.losses(observation, texts, hide_bos=True)
                explained.add(formula(float(seen["loss"]), losses, hidden, seen["logits"], texts))
        measured.append((size, training, seen["loss"], losses))
    expect(explained.pop() if len(explained) == 1 else "another", "formula")
    for size, training, loss, losses in measured:
        of = f"of {size} text{'s' * (size > 1)} in {'training' if training else 'evaluation'}"
        expect(loss, f"the loss {of}").close_to(float(torch.cat(losses).mean()), **ROUNDING)


@check(
    kind="behaviour",
    title="Every token is learnt",
    property="The gradient of every parameter must be that of the mean over the characters and the <end> of each text.",
    instrument="debugkit.gradient_norms(policy)",
)
def test_gradients_equal_the_reference(submission: Submission, rng: Rng) -> None:
    texts, observation, seed = random_texts(rng, 5), observed(rng, 5), rng.seed()
    seen = submission.observe("training_step", observation=observation, texts=texts, training=True, seed=seed)
    writer = Writer.from_base(seed=seed)
    torch.cat(writer.losses(observation, texts)).mean().backward()
    wanted = {name: value.grad for name, value in writer.named_parameters() if value.grad is not None}
    found = seen["gradients"]
    expect(sorted(found), "the names of the parameters with a gradient").equals(sorted(wanted))
    large = NOISE * max(float(value.norm()) for value in wanted.values())
    other = [
        name for name, value in wanted.items() if value.norm() > large and relative_error(found[name], value) > 0.01
    ]
    expect(listed(other), "what has another gradient than that of the mean over the tokens").equals("nothing")


@check(
    kind="invariant",
    title="A text gives the same logits in every batch",
    property="The logits along a text must be those that the text gives alone, however long the other texts of the batch and its instruction are.",
    instrument="debugkit.check(policy, batch, select=['DK303'])",
)
def test_text_reads_the_same_in_every_batch(submission: Submission, rng: Rng) -> None:
    observation, texts, seed = observed(rng, 4), random_texts(rng, 4), rng.seed()
    with torch.no_grad():
        wanted = Writer.from_base(seed=seed).logits(observation, texts)
    for training in (True, False):
        seen = submission.observe("training_step", observation=observation, texts=texts, training=training, seed=seed)
        for row, text in enumerate(texts):
            found = seen["logits"][row, : len(text) + 1]
            expect(found, f"the logits of {text!r} in row {row}").close_to(wanted[row], rtol=1e-3, atol=1e-4)


@check(
    kind="invariant",
    title="A batch holds the demonstrated actions as text",
    property="Each row must be <bos>, the text of the first action and <end>, next to the observations of the frames; an unknown character must become <unk>.",
    instrument='python -c \'from policy import *; print(collate_texts(["o 17 100", "c 3 -2"]))\'',
)
def test_batch_holds_the_texts(submission: Submission, rng: Rng) -> None:
    seed, count = rng.integer(0, 1000), 24
    frames = demonstrations(count, seed)
    seen = submission.observe("batch", seed=seed, count=count)
    wanted = observation_batch(frames.image, frames.state, frames.instruction)
    expect({name: seen.get(name) for name in wanted}, "the observations of the batch").close_to(wanted)
    expect_tokens(seen["text_ids"], [text_of(chunk[0]) for chunk in torch.from_numpy(frames.action)])
    texts = random_texts(rng, 5)
    expect_tokens(submission.call("collate_texts", texts)["text_ids"], texts)
    strange = ["o 1.5 ~", ""]
    found = submission.observe("readings", texts=strange)["tokens"]
    for text, tokens in zip(strange, found, strict=True):
        expect(tokens, f"the tokens of {text!r}").equals(tokens_of(text))


@check(
    kind="invariant",
    title="A text is the action in whole millimetres",
    property="An action must be written as gripper, dx and dy in whole millimetres, separated by spaces, and read back within half a millimetre. What follows the second number must not be read, and an unreadable text must give no movement and an open gripper.",
    instrument="python -c 'from policy import *; print(write(read(\"c 33 -26\")))'",
)
def test_texts_are_actions(submission: Submission, rng: Rng) -> None:
    move = rng.uniform(40, 2, low=-0.1, high=0.1)
    move[:3] = torch.tensor([[0.0, 0.1], [-0.1, -0.1], [0.0042, -0.0071]])
    action = torch.cat([move, rng.uniform(40, 1, low=-1.0, high=1.0)], dim=1)
    action[3, 2] = 0.0
    seen = submission.observe("written", action=action)
    expect(seen["texts"], "the texts of actions").equals([text_of(one) for one in action])
    gripper = torch.where(action[:, 2] > 0, 1.0, -1.0)
    expect(seen["read"][:, :2], "the movements that are read from the texts").close_to(move, rtol=0, atol=5.1e-4)
    expect(seen["read"][:, 2], "the grippers that are read from the texts").equals(gripper)
    texts = ["o 17 -4 55 6", "c -100 3 o", "o 2000 -1500", "c 7", "-3 8 o", "x 4 5", "", "o 2 -", " c 1 1"]
    wanted = [[0.017, -0.004, -1.0], [-0.1, 0.003, 1.0], [2.0, -1.5, -1.0], *[[0.0, 0.0, -1.0]] * 6]
    for text, found, one in zip(texts, submission.observe("readings", texts=texts)["read"], wanted, strict=True):
        expect(found, f"the action read from {text!r}").close_to(torch.tensor(one))


@check(
    kind="invariant",
    title="The policy writes its likeliest tokens, each of which it reads once",
    property="`generate` must return the likeliest tokens until every row has an <end>, or 16 tokens, with <end> in the rest of a row, and must pass each position through the language model once, without recording a graph. `say` must return the texts before <end>, `answer` their actions.",
    instrument="debugkit.check(policy, batch, select=['DK315'])",
)
def test_policy_writes_the_likeliest_tokens(submission: Submission, rng: Rng) -> None:
    half = "of which half end at once"
    for size, ends in ((8, "that never end"), (12, half), (12, half), (12, half), (4, "that end soon")):
        observation, seed, what = observed(rng, size), rng.seed(), f"for {size} frames {ends}"
        weight, bias = rng.normal(len(VOCABULARY), WIDTH), torch.zeros(len(VOCABULARY))
        writer = Writer.from_base(seed=seed)
        with torch.no_grad():
            writer.text_head.weight.copy_(weight)
            writer.text_head.bias.zero_()
            at_once = writer.bias_that_ends_half_at_once(observation)
            bias[END] = {"that never end": -50.0, "that end soon": at_once + 8.0}.get(ends, at_once)
            writer.text_head.bias.copy_(bias)
            wanted = writer.generated(observation)
        seen = submission.observe("generated", observation=observation, weight=weight, bias=bias, seed=seed)
        texts = [text_in(row) for row in wanted.tolist()]
        if ends == "that never end":
            expect(seen["tokens"].shape[1], "tokens without an end")
            shorter = [one != text and text.startswith(one) for one, text in zip(seen["texts"], texts, strict=False)]
            expect(all(shorter), "whether every text is cut without an end")
        expect(seen["tokens"], f"the generated tokens {what}").equals(wanted)
        expect(seen["texts"], f"the texts said {what}").equals(texts)
        expect(seen["action"], f"the actions {what}").close_to(torch.stack([action_of(text) for text in texts]))
        expect(seen["graph"], f"whether a graph is recorded {what}").is_false()
        prefix = 16 + observation["input_ids"].shape[1] + 1
        expect(sum(seen["positions"]), f"the positions that the language model reads {what}").at_most(
            prefix + wanted.shape[1]
        )


@check(
    kind="invariant",
    title="The rest of the policy is the base",
    property="The checkpoint must have the names of the base, of the text's embedding table and of its head, and there must be no parameters for actions.",
    instrument="python -c 'from policy import *; print(build_policy(0))'",
)
def test_rest_is_the_base(submission: Submission, rng: Rng) -> None:
    seed = rng.seed()
    seen, writer = submission.observe("stored", seed=seed), Writer.from_base(seed=seed)
    expect(seen["names"], "the names in the checkpoint").equals(sorted(writer.state_dict()))
    expect(seen["head"], "horizon and action dimensions of the head").equals(
        [writer.head.horizon, writer.head.action_dim]
    )


@check(
    kind="invariant",
    title="The image and the instruction still matter",
    property="Another image and another instruction must each change the logits of the text's first character.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    observation, texts, seed = observed(rng, 3), random_texts(rng, 3), rng.seed()
    asked = {"texts": texts, "training": False, "seed": seed}
    before = submission.observe("training_step", observation=observation, **asked)["logits"][:, 0]
    for name in ("pixel_values", "input_ids"):
        other = {**observation, name: observation[name].roll(1, dims=0)}
        moved = submission.observe("training_step", observation=other, **asked)["logits"][:, 0]
        expect(moved, f"the logits under another {name}").differs_from(before)


@check(
    kind="outcome",
    title="A memorised batch is executed as demonstrated",
    property=f"After 80 steps on 16 demonstrations, at least {BAR:.0%} of the actions must be the demonstrated ones to 1 mm, after at most {LONGEST_ANSWER} tokens.",
    instrument="lab run 35",
)
def test_memorised_batch_is_executed(submission: Submission, seed: int) -> None:
    seen = submission.observe("memorised", seed=seed)
    near = ((seen["action"] - seen["wanted"]).abs() < 1e-3).all(dim=1).double().mean()
    expect(near, "the share of actions that are as demonstrated").at_least(BAR)
    expect(seen["tokens"], "the number of tokens of the longest answer").at_most(LONGEST_ANSWER)


FORMULA = "test_loss_equals_the_reference/formula"
WRITES = "test_policy_writes_the_likeliest_tokens"
WITHOUT_END = "the mean without <end>"


@wrong_fix(
    "padding_is_learnt",
    says="Every <end> is a target now, also those that only fill the row: the policy is trained mostly to repeat <end>, and the shorter a text is, the more of them it has.",
)
def recognise_padding(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the mean over all positions, with <end> as the padding's target"


@wrong_fix(
    "pad_with_bos",
    says="The labels hold the <end> now. But <bos> opens every text, and the mask now hides it from attention, in training only.",
)
def recognise_bos(evidence: Mapping[str, Any]) -> bool:
    return evidence[FORMULA] == "the mean over the texts' tokens, with <bos> hidden"


@wrong_fix(
    "lower_limit",
    says="The lower limit cuts what the policy writes, at the same place for every text. The loss still has no <end>, so the policy never learns where its own text ends.",
)
def recognise_lower_limit(evidence: Mapping[str, Any]) -> bool:
    generated = evidence.get(f"{WRITES}/tokens without an end")
    return evidence[FORMULA] == WITHOUT_END and generated is not None and generated < LONGEST


@wrong_fix(
    "cut_the_text",
    says="The text is cut after it is written. The policy still never learns to end it: a digit too many is part of the number, and each answer still takes all sixteen tokens.",
)
def recognise_cut(evidence: Mapping[str, Any]) -> bool:
    generated, cut = (
        evidence.get(f"{WRITES}/{what} without an end") for what in ("tokens", "whether every text is cut")
    )
    return evidence[FORMULA] == WITHOUT_END and generated == LONGEST and cut is True


class Writer(Policy):
    """The reference: the base policy that reads a text, one at a time, so that nothing is ever padded."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.text_embedding = nn.Embedding(len(VOCABULARY), self.config.width)
        nn.init.normal_(self.text_embedding.weight, std=0.3)
        self.text_head = nn.Linear(self.config.width, len(VOCABULARY))

    def build_head(self) -> ActionHead:
        return ActionHead(self.config.horizon, self.config.action_dim)

    def after(self, observation: dict[str, Tensor], row: int, tokens: list[int], hide_bos: bool = False) -> Tensor:
        """The logits (T, tokens) after each of `tokens`, for one row of the observations."""
        prefix, mask = self.embed_prefix(**{name: value[row : row + 1] for name, value in observation.items()})
        ids = torch.tensor([tokens])
        own = torch.ones_like(ids)
        own[0, 0] = not hide_bos
        sequence = torch.cat([prefix, self.text_embedding(ids)], dim=1)
        hidden = self.run_language_model(sequence, torch.cat([mask, own], dim=1))
        return self.text_head(hidden[0, prefix.shape[1] :])

    def logits(self, observation: dict[str, Tensor], texts: list[str], hide_bos: bool = False) -> list[Tensor]:
        """For each text, the logits (T, tokens) after <bos> and after each character."""
        return [self.after(observation, row, tokens_of(text)[:-1], hide_bos) for row, text in enumerate(texts)]

    def losses(self, observation: dict[str, Tensor], texts: list[str], hide_bos: bool = False) -> list[Tensor]:
        """For each text, the loss of each character and of its <end>."""
        logits = self.logits(observation, texts, hide_bos)
        targets = [torch.tensor(tokens_of(text)[1:]) for text in texts]
        return [F.cross_entropy(*pair, reduction="none") for pair in zip(logits, targets, strict=True)]

    def bias_that_ends_half_at_once(self, observation: dict[str, Tensor]) -> float:
        """The bias of <end> with which it is the likeliest first token in half of the rows."""
        prefix, mask = self.embed_prefix(**observation)
        first = torch.full((len(prefix), 1), BOS)
        sequence = torch.cat([prefix, self.text_embedding(first)], dim=1)
        hidden = self.run_language_model(sequence, torch.cat([mask, torch.ones_like(first)], dim=1))
        logits = self.text_head(hidden[:, -1])  # (B, tokens)
        behind = (logits[:, :END].amax(dim=1) - logits[:, END]).sort().values
        return float(behind[len(behind) // 2 - 1 : len(behind) // 2 + 1].mean())

    def generated(self, observation: dict[str, Tensor]) -> Tensor:
        """The likeliest tokens (B, T), computed from the whole sequence for each token."""
        prefix, mask = self.embed_prefix(**observation)
        tokens = torch.full((len(prefix), 1), BOS)
        while tokens.shape[1] <= LONGEST and not (tokens == END).any(dim=1).all():
            sequence = torch.cat([prefix, self.text_embedding(tokens)], dim=1)
            hidden = self.run_language_model(sequence, torch.cat([mask, torch.ones_like(tokens)], dim=1))
            likeliest = self.text_head(hidden[:, -1]).argmax(dim=-1)
            likeliest[(tokens == END).any(dim=1)] = END
            tokens = torch.cat([tokens, likeliest[:, None]], dim=1)
        return tokens[:, 1:]


def formula(measured: float, rows: list[Tensor], hidden: list[Tensor], logits: Tensor, texts: list[str]) -> str:
    """Which formula explains the loss of texts that all differ in length.

    `rows` and `hidden` are the losses of each text's tokens, with <bos> seen and hidden; `logits` (B, T, tokens) are
    the submission's, of which only those of the padding are used.
    """
    every = torch.cat(rows)
    padding = torch.cat([logits[row, len(text) + 1 : -1].float() for row, text in enumerate(texts)])
    as_end = F.cross_entropy(padding, torch.full((len(padding),), END), reduction="none")
    candidates = {
        "the mean over the texts' tokens": every.mean(),
        WITHOUT_END: torch.cat([one[:-1] for one in rows]).mean(),
        "the mean over all positions, with <end> as the padding's target": torch.cat([every, as_end]).mean(),
        "the mean over the texts' tokens, with <bos> hidden": torch.cat(hidden).mean(),
    }
    for name, value in candidates.items():
        if abs(measured - float(value)) <= 1e-4 * abs(float(value)) + 1e-6:
            return name
    return "another"


def tokens_of(text: str) -> list[int]:
    """<bos>, the characters, <end>."""
    return [BOS, *(VOCABULARY.index(one) if one in VOCABULARY else UNK for one in text), END]


def text_of(action: Tensor) -> str:
    """The text of an action (3,)."""
    dx, dy = (round(float(metres) * 1000) for metres in action[:2])
    return f"{'c' if action[2] > 0 else 'o'} {dx} {dy}"


def action_of(text: str) -> Tensor:
    """The action (3,) that a text begins with; no movement and an open gripper if it begins with none."""
    found = re.match(r"(o|c) (-?[0-9]+) (-?[0-9]+)", text)
    gripper, dx, dy = found.groups() if found else ("o", "0", "0")
    return torch.tensor([int(dx) / 1000, int(dy) / 1000, 1.0 if gripper == "c" else -1.0])


def text_in(tokens: list[int]) -> str:
    """The characters before <end>."""
    ends = tokens.index(END) if END in tokens else len(tokens)
    return "".join(VOCABULARY[token] for token in tokens[:ends])


def expect_tokens(text_ids: Tensor, texts: list[str]) -> None:
    """Each row of `text_ids` must begin with the tokens of its text."""
    longest = max(map(len, texts)) + 2
    expect(text_ids, "text_ids").has_shape(len(texts), longest)
    for row, text in enumerate(texts):
        wanted = tokens_of(text)
        expect(text_ids[row, : len(wanted)].tolist(), f"the tokens of {text!r} in its batch").equals(wanted)


def random_texts(rng: Rng, size: int) -> list[str]:
    """Texts of different lengths, 5 to 11 characters, with random numbers."""
    texts = []
    for length in rng.permutation(7)[:size].tolist():
        characters = length + 2  # of both numbers
        first = rng.integer(max(1, characters - 4), min(4, characters - 1) + 1)
        dx, dy = (random_number(rng, count) for count in (first, characters - first))
        texts.append(f"{rng.choice('oc')} {dx} {dy}")
    return texts


def random_number(rng: Rng, characters: int) -> int:
    """A number that is written with 1 to 4 characters."""
    if characters == 4 or (characters > 1 and rng.integer(0, 2)):
        return -random_number(rng, characters - 1) if characters < 4 else -rng.integer(100, 1000)
    return rng.integer(10 ** (characters - 1) if characters > 1 else 1, 10**characters)


def observed(rng: Rng, size: int) -> dict[str, Tensor]:
    """Observations: a random batch without its actions, whose instructions have one to eight words."""
    batch = {name: value for name, value in random_batch(rng, size).items() if not name.startswith("action")}
    words = torch.cat([torch.tensor([2]), rng.integers(1, WORDS + 1, size - 1)])
    batch["attention_mask"] = (torch.arange(WORDS) < words[:, None]).long()
    return batch
