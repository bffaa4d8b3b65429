"""What must hold for a policy whose actions are tokens. Runs in the grader's process and never sees the learner's code.

The reference is cross-entropy over the policy's own logits, with the bins computed independently here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import random_batch

BINS, LARGEST_MOVE = 48, 0.1
STEPS_OF_TRAINING = 3
BASE = Path(__file__).resolve().parents[1] / "vla" / "base.safetensors"
ONE_BIN = 2 / BINS


@check(
    kind="behaviour",
    title="Every action token has an input row and an output row",
    property="Each id must be smaller than the number of rows, no two bins may share an id, and the loss must be the cross-entropy of the expert's tokens.",
    instrument="debugkit.check(policy, batch, select=['DK006'])",
)
def test_every_token_has_a_row(submission: Submission, rng: Rng) -> None:
    table = submission.observe("table", seed=rng.seed())
    expect(table["ids"], "the ids of the action tokens").has_shape(BINS)
    expect(len(table["ids"].unique()), "the number of different action ids").equals(BINS)
    expect(int(table["ids"].max()), "the largest id").below(table["rows read"])
    expect(int(table["ids"].max()), "the largest id").below(table["rows said"])
    for size in (rng.integer(2, 5), rng.integer(5, 9), 1):
        batch = batch_of_every_bin(rng, size)
        seen = submission.observe("spoken", batch=batch, seed=rng.seed())
        expect(seen["loss"], f"the loss of {size} frame{'s' * (size > 1)}").close_to(
            cross_entropy(seen["logits"], seen["ids"], batch), rtol=1e-4, atol=1e-5
        )


@check(
    kind="behaviour",
    title="Every action token's row learns, and differs from every other",
    property=f"After {STEPS_OF_TRAINING} steps on a batch in which every bin occurs, each action token's row must have moved, and no two rows of actions or words may be equal.",
    instrument="debugkit.check(policy, batch, optimizer=optimizer, select=['DK101', 'DK102'])",
)
def test_action_rows_learn(submission: Submission, rng: Rng) -> None:
    batch = batch_of_every_bin(rng, 8)
    batch["action_is_pad"] = torch.zeros(8, 4, dtype=torch.bool)
    seen = submission.observe("rows_before_and_after", batch=batch, seed=rng.seed(), steps=STEPS_OF_TRAINING)
    moved = (seen["after"] - seen["before"]).norm(dim=-1)
    expect(moved, "how far each action token's row moved").has_shape(BINS).above(1e-5)
    rows = torch.cat([seen["words"], seen["after"]])
    apart = (rows[:, None] - rows[None]).norm(dim=-1) + 1e9 * torch.eye(len(rows))
    expect(apart.min(dim=1).values, "the distance of each row from the nearest other").above(1e-5)


@check(
    kind="behaviour",
    title="Decoding inverts encoding",
    property="An action that is encoded as a token and decoded again must come back within half a bin, over the whole range.",
    instrument="debugkit.check(policy, batch, select=['DK405'])",
)
def test_action_round_trip(submission: Submission, rng: Rng) -> None:
    action = torch.cat([rng.uniform(200, low=-1.0, high=1.0), torch.tensor([-1.0, 1.0])])
    back = submission.observe("round_trip", action=action)
    expect((back["decoded"] - action).abs(), "the error of decode(encode(action))").at_most(ONE_BIN / 2 + 1e-5)


@check(
    kind="invariant",
    title="The words are the pretrained ones",
    property="The rows of the words in an instruction must be those of the base checkpoint when training begins.",
    instrument="debugkit.check(policy, batch, checkpoint=base)",
)
def test_words_stay_pretrained(submission: Submission, rng: Rng) -> None:
    with safe_open(BASE, framework="pt") as file:
        pretrained = file.get_tensor("language_model.embed_tokens.weight")
    seen = submission.observe("rows_before_and_after", batch=batch_of_every_bin(rng, 4), seed=rng.seed(), steps=1)
    expect(seen["words before"], "the rows of the words before training").close_to(pretrained)
    expect((seen["words"] - pretrained).abs(), "how far one step moves the words' rows").below(LARGEST_MOVE)


@check(
    kind="invariant",
    title="The image and the instruction matter",
    property="Another image and another instruction must each change the logits of the first action token.",
    instrument="debugkit.check(policy, batch, select=['DK306'])",
)
def test_image_and_instruction_matter(submission: Submission, rng: Rng) -> None:
    batch, seed = random_batch(rng, 3), rng.seed()
    before = submission.observe("logits", batch=batch, seed=seed)
    expect(before, "the logits").has_shape(3, BINS)
    for name, other in (
        ("pixel_values", batch["pixel_values"].flip(0)),
        ("input_ids", batch["input_ids"].roll(1, dims=0)),
    ):
        moved = submission.observe("logits", batch={**batch, name: other}, seed=seed)
        expect(moved, f"the logits under another {name}").differs_from(before)


@check(
    kind="invariant",
    title="Every parameter is trained, once",
    property="Each trainable parameter of the policy must be in exactly one of the optimizer's groups, once.",
    instrument="debugkit.check(policy, batch, optimizer=optimizer, select=['DK101'])",
)
def test_optimizer_holds_every_parameter_once(submission: Submission) -> None:
    counts = submission.observe("optimized")
    expect(len(counts), "the number of trainable parameters").at_least(40)
    expect(sorted(name for name, count in counts.items() if count != 1), "the list of parameters not held once").equals(
        []
    )


@check(
    kind="outcome",
    title="The policy overfits a few frames",
    property="After 100 steps on 8 frames the policy must generate the expert's chunk, to within one bin on average.",
    instrument="lab run 02",
)
def test_learns_frames_by_heart(submission: Submission, seed: int) -> None:
    after = submission.observe("learnt_by_heart", seed=seed)
    expect(after["said"], "the generated actions").has_shape(*after["expert"].shape)
    expect((after["said"] - after["expert"]).abs().mean(), "the mean error of the generated actions").below(ONE_BIN)


@wrong_fix(
    "clamp_ids",
    says="Nothing raises any more, because every action id becomes the id of the table's last row: 48 tokens share one row.",
)
def recognise_clamp(evidence: Mapping[str, Any]) -> bool:
    after = evidence["rows_before_and_after"]["after"]
    return beyond(evidence["table"]) and bool((after == after[:1]).all())


@wrong_fix(
    "modulo",
    says="The remainder of each id is the id of a word or of a reserved token. Actions now share rows with the words of the instruction.",
)
def recognise_modulo(evidence: Mapping[str, Any]) -> bool:
    return beyond(evidence["table"]) and shares_rows_with_words(evidence["rows_before_and_after"])


@wrong_fix(
    "modulo_in_the_ids",
    says="The ids fit now, but the first of them belong to words: `go` and an action share one row, and training pulls it in two directions.",
)
def recognise_remainders(evidence: Mapping[str, Any]) -> bool:
    return not beyond(evidence["table"]) and shares_rows_with_words(evidence["rows_before_and_after"])


@wrong_fix(
    "after_the_optimizer",
    says="The table is long enough, but the optimizer was built earlier and holds the old table. A parameter must exist when the optimizer that trains it is built.",
)
def recognise_late(evidence: Mapping[str, Any]) -> bool:
    rows = evidence["rows_before_and_after"]
    return not beyond(evidence["table"]) and torch.equal(rows["before"], rows["after"])


@wrong_fix(
    "input_only",
    says="The input table grew and the output head did not: the two are no longer tied.",
)
def recognise_untied(evidence: Mapping[str, Any]) -> bool:
    table = evidence["table"]
    return table["rows said"] <= int(table["ids"].max()) < table["rows read"]


@wrong_fix(
    "new_table",
    says="The new table is long enough, but everything the base had learnt about the words is gone. Keep the old rows and initialise only the new ones.",
)
def recognise_new_table(evidence: Mapping[str, Any]) -> bool:
    seen = evidence.get("test_words_stay_pretrained/the rows of the words before training")
    if seen is None or beyond(evidence["table"]):
        return False
    with safe_open(BASE, framework="pt") as file:
        pretrained = file.get_tensor("language_model.embed_tokens.weight")
    return float((seen[1:] - pretrained[1:]).abs().min(dim=1).values.max()) > 1e-3


def beyond(table: Mapping[str, Any]) -> bool:
    """Whether an action id has no input row, or no output row."""
    return int(table["ids"].max()) >= min(table["rows read"], table["rows said"])


def shares_rows_with_words(rows: Mapping[str, Tensor]) -> bool:
    """Whether a word and an action share a row."""
    return bool((rows["words"][:, None] == rows["after"][None]).all(dim=-1).any())


def batch_of_every_bin(rng: Rng, size: int) -> dict[str, Tensor]:
    """A random batch whose actions, in environment units, cover as many bins as fit."""
    batch = random_batch(rng, size)
    cells = torch.stack([rng.permutation(BINS) for _ in range(-(-size * 12 // BINS))]).flatten()[: size * 12]
    normalised = (cells + rng.uniform(size * 12, low=0.1, high=0.9)) / BINS * 2 - 1
    scale = torch.tensor([0.1, 0.1, 1.0])
    return {
        **batch,
        "action": normalised.view(size, 4, 3) * scale,
        "action_is_pad": torch.arange(4)[None] >= rng.integers(2, 5, size)[:, None],
    }


def cross_entropy(logits: Tensor, ids: Tensor, batch: dict[str, Tensor]) -> float:
    """The reference loss of a chunk's tokens without padded steps, from logits (B, 12, rows) and the bins' ids (48,)."""
    normalised = batch["action"].double() / torch.tensor([0.1, 0.1, 1.0], dtype=torch.float64)
    bins = ((normalised + 1) / 2 * BINS).floor().long().clamp(0, BINS - 1)
    error = F.cross_entropy(logits.double().flatten(0, 1), ids[bins].flatten(), reduction="none").view_as(normalised)
    return float(error.mean(dim=-1)[~batch["action_is_pad"]].mean())
