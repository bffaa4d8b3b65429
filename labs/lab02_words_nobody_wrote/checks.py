"""What must hold for a policy whose actions are tokens. Runs in the grader's process and never sees the learner's code.

The reference is the pretrained base with rows for the action tokens that are drawn here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

from labs.grading import Rng, Submission, check, expect, wrong_fix
from labs.invariants import listed, random_batch
from labs.vla.language import VOCABULARY
from labs.vla.policy import OBSERVATION_KEYS, Policy

BINS = 48
WORDS = len(VOCABULARY)
TEXT_TOKENS = (*VOCABULARY, *(f"<reserved_{number}>" for number in range(64 - WORDS)))
"""The pretrained tokenizer's tokens, in the order of their ids."""
STEPS_OF_TRAINING = 3
BASE = Path(__file__).resolve().parents[1] / "vla" / "base.safetensors"
ONE_BIN = 2 / BINS
SCALE = torch.tensor([0.1, 0.1, 1.0])
"""Half the range of each action dimension, in environment units."""


@check(
    kind="behaviour",
    title="Every action token has an input row and an output row",
    property="Each id must be smaller than the number of rows, and no action token may have the id of another one or of a word.",
    instrument="debugkit.check(policy, batch, select=['DK006'])",
)
def test_every_token_has_a_row(submission: Submission, rng: Rng) -> None:
    table = submission.observe("table", seed=rng.seed())
    expect(table["ids"], "the ids of the action tokens").has_shape(BINS)
    for name, place in (("rows read", "input table"), ("rows said", "output head")):
        what = f"with {table[name]} rows in the {place}, the largest id of an action token,"
        expect(int(table["ids"].max()), what).below(table[name])
    ids = torch.cat([torch.arange(WORDS), table["ids"]])
    expect(len(ids) - len(ids.unique()), "the number of action tokens with the id of another token").equals(0)
    text = submission.observe("vocabulary")
    expect(text["ids"], "the ids of the words in the tokenizer").equals(torch.arange(WORDS))
    expect(text["text tokens"], "the number of tokens in the pretrained tokenizer").equals(64)
    expect(text["rows"], "the number of rows for them in the pretrained table").at_least(64)


@check(
    kind="behaviour",
    title="One table is read and predicted from",
    property="The output head must use the rows of the input table itself and not a copy, and `tie_weights` must tie it to whatever table the language model has.",
    instrument="print(policy.lm_head.weight is policy.language_model.embed_tokens.weight, policy.lm_head)",
)
def test_one_table(submission: Submission, rng: Rng) -> None:
    rows = rng.normal(3, 64)
    seen = submission.observe("tied", rows=rows, seed=rng.seed())
    for name, when in (
        ("pretrained", "before action tokens are added"),
        ("built", "as built"),
        ("tied again", "after `tie_weights` with a longer input table"),
    ):
        follows = (seen[name] == rows).all(dim=-1).sum()
        expect(
            int(follows), f"of 3 rows changed in the input table, the number changed in the output head, {when},"
        ).equals(3)
    expect(seen["out_features"], "`lm_head.out_features` after `tie_weights`").equals(seen["rows"])


@check(
    kind="behaviour",
    title="The pretrained parts are those of the base",
    property="When training begins, images, words, state and the language model's hidden states must be those of the pretrained base.",
    instrument="debugkit.check(policy, batch, checkpoint=base)",
)
def test_base_is_loaded(submission: Submission, rng: Rng) -> None:
    batch, embeddings = random_batch(rng, 2), rng.normal(2, 9, 64)
    seen = submission.observe("pretrained_parts", batch=batch, embeddings=embeddings, seed=rng.seed())
    with torch.no_grad():
        expected = {
            "words": base().embed_instruction(torch.arange(WORDS)),
            "images": base().embed_images(batch["pixel_values"]),
            "state": base().embed_state(batch["state"]),
            "hidden states": base().run_language_model(embeddings, torch.ones(2, 9, dtype=torch.long)),
        }
    for name, what in (
        ("words", "the rows of the words"),
        ("images", "what vision tower and projector compute"),
        ("state", "the embedding of the state"),
        ("hidden states", "the hidden states of the language model"),
    ):
        error = relative_error(seen[name], expected[name])
        expect(error, f"how far {what} are from those of the base, relative to their size,").at_most(1e-4)


@check(
    kind="behaviour",
    title="Every action token's row learns",
    property=f"After {STEPS_OF_TRAINING} steps on a batch in which every bin occurs, each action token's row must have moved, and no two rows of actions or words may be equal.",
    instrument="debugkit.check(policy, batch, optimizer=optimizer, select=['DK101', 'DK102'])",
)
def test_action_rows_learn(submission: Submission, rng: Rng) -> None:
    batch = batch_of_every_bin(rng, 8)
    seen = submission.observe("rows_before_and_after", batch=batch, seed=rng.seed(), steps=STEPS_OF_TRAINING)
    expect(seen["after"], "the rows of the action tokens").has_shape(BINS, 64)
    moved = int(((seen["after"] - seen["before"]).norm(dim=-1) > 1e-5).sum())
    expect(moved, f"the number of action tokens whose row moved in {STEPS_OF_TRAINING} steps").equals(BINS)
    rows = torch.cat([seen["words"], seen["after"]])
    apart = (rows[:, None] - rows[None]).norm(dim=-1) + 1e9 * torch.eye(len(rows))
    close = int((apart.min(dim=1).values < 1e-5).sum())
    expect(close, f"the number of tokens whose row equals another token's after {STEPS_OF_TRAINING} steps").equals(0)


@check(
    kind="behaviour",
    title="Loss and chunk are those of the base with these rows",
    property="With given rows for the action tokens, the loss must be the cross-entropy of the expert's tokens over all rows, and the policy must generate the most likely action token at each place.",
    instrument="debugkit.check(policy, batch, checkpoint=base)",
)
def test_loss_and_chunk(submission: Submission, rng: Rng) -> None:
    several = rng.integer(3, 6)
    for what, batch, length in (
        ("one frame", batch_of_every_bin(rng, 1), 0.3),
        (f"{several} frames with padded steps and words", padded(rng, batch_of_every_bin(rng, several)), 0.3),
        ("4 frames where a word is more likely than each action", batch_of_every_bin(rng, 4), 0.02),
        ("2 frames in which every step is padding", all_padded(batch_of_every_bin(rng, 2)), 0.3),
    ):
        rows, chunk = clear_rows(rng, batch, length)
        seen = submission.observe("with_rows", batch=batch, rows=rows, seed=rng.seed())
        loss, gradients = reference(batch, rows, seen["tokens"] - WORDS - BINS)
        expect(seen["loss"], f"the loss of {what}").close_to(loss, rtol=1e-4, atol=1e-5)
        for name, gradient in gradients.items():
            error = relative_error(seen[name], gradient)
            expect(error, f"the relative error of the gradient in `{name}`, for {what},").at_most(1e-3)
        for name, who in (("said", "the policy in evaluation mode"), ("predicted", "`policy.predict`")):
            expect(seen[name], f"the chunk of {who}").has_shape(*chunk.shape)
            other = int(((seen[name] - chunk).abs() > 1e-4 * SCALE).sum() + seen[name].isnan().sum())
            expect(
                other, f"of {chunk.numel()} numbers that {who} generates for {what}, the number that differs"
            ).equals(0)
        expect(seen["loss without actions"], "the loss of a batch without actions").equals(None)


@check(
    kind="behaviour",
    title="Actions become the tokens of their bins, and come back as the centres",
    property="Each normalised action must get the id of its bin, actions outside [-1, 1] that of the outermost bin, and the id must be decoded to the bin's centre.",
    instrument="debugkit.check(policy, batch, select=['DK405'])",
)
def test_action_round_trip(submission: Submission, rng: Rng) -> None:
    bins = torch.cat([rng.permutation(BINS), rng.permutation(BINS)]).view(4, 8, 3)
    action = (bins + rng.uniform(4, 8, 3, low=0.1, high=0.9)) / BINS * 2 - 1
    action[0, 0], bins[0, 0] = torch.tensor([-1.0, 1.0, -1.3]), torch.tensor([0, BINS - 1, 0])
    action[0, 1, 0], bins[0, 1, 0] = 1.7, BINS - 1
    seen = submission.observe("coded", action=action)
    expect(seen["ids"], "the token ids of 4 chunks").has_shape(*action.shape)
    wrong = int((seen["ids"] != seen["bins"][bins]).sum())
    expect(wrong, f"of {action.numel()} normalised actions, the number with another id than their bin's").equals(0)
    centres = (bins + 0.5) / BINS * 2 - 1
    expect(seen["decoded"], "the decoded actions").has_shape(*action.shape)
    error = float((seen["decoded"] - centres).abs().max())
    expect(error, "the largest distance of a decoded action from its bin's centre").at_most(1e-5)


@check(
    kind="invariant",
    title="The optimizer trains every parameter, as described",
    property="Each parameter must require a gradient and be in exactly one group, once, and weight decay must apply to matrices but not to token rows, biases and norms.",
    instrument="debugkit.check(policy, batch, optimizer=optimizer, select=['DK101', 'DK104'])",
)
def test_optimizer(submission: Submission) -> None:
    gradients = [1.0, -0.5, 0.25]
    seen = submission.observe("optimized", gradients=gradients)
    pretrained = {name for name, _ in base().named_parameters() if not name.startswith("head.")}
    expect(listed(pretrained - set(seen["held"])), "the list of pretrained parameters that do not train").equals(
        "nothing"
    )
    wrong = {name for name, count in seen["held"].items() if count != 1}
    expect(listed(wrong), "the list of parameters that the optimizer does not hold once").equals("nothing")
    expect(seen["others"], "the number of tensors in the optimizer that the policy does not use").equals(0)
    expect(seen["frozen"], "the number of frozen parameters in an optimizer that is built after freezing").equals(0)
    token_rows = {"language_model.embed_tokens.weight", "lm_head.weight"}
    for decays, kind in ((True, "matrices"), (False, "token rows, biases and norms")):
        names = {name for name in seen["held"] if (name in seen["matrices"] and name not in token_rows) is decays}
        expected = after_steps(gradients, weight_decay=0.01 if decays else 0.0)
        off = {name for name in names if abs(seen["after"][name] - expected) > 2e-6}
        expect(listed(off), f"of {kind}, the list of those that {len(gradients)} steps change in another way").equals(
            "nothing"
        )


@check(
    kind="invariant",
    title="The seed determines the new rows",
    property="The same seed must give the same policy, another seed another row for each action token, and the caller's random state must not change.",
    instrument="debugkit.check(policy, batch, optimizer=optimizer, select=['DK701'])",
)
def test_seed(submission: Submission, rng: Rng) -> None:
    seed = rng.seed()
    first = submission.observe("drawn", seed=seed, state=1)
    again = submission.observe("drawn", seed=seed, state=2)
    other = submission.observe("drawn", seed=seed + 1, state=1)
    expect(first["random state kept"], "whether `build_training` leaves the caller's random state as it was").is_true()
    expect(same_rows(first, again), "the number of rows that a second policy of the same seed has in common").equals(
        len(first["input table"])
    )
    drawn, others = (one["input table"][one["ids"]] for one in (first, other))
    expect(drawn, "the rows of the action tokens").has_shape(BINS, 64)
    same = int((drawn == others).all(dim=-1).sum())
    expect(same, "the number of action tokens whose row a policy of another seed has in common").equals(0)


@check(
    kind="invariant",
    title="Other chunk sizes and other devices still work",
    property="A policy with another horizon must train and predict, the action ids must move with the policy, and no checkpoint may hold them. The same tokens must have the same ids in a second call of `add_action_tokens`, and in a policy that is built with the longer table.",
    instrument="debugkit.check(policy, batch, select=['DK003', 'DK005'])",
)
def test_other_sizes_and_devices(submission: Submission, rng: Rng) -> None:
    horizon = rng.integer(5, 8)
    seen = submission.observe("another_size", batch=random_batch(rng, 2, horizon=horizon))
    expect(seen["loss"], f"the loss of a chunk of {horizon} steps").finite()
    expect(seen["said"], f"the chunk of a policy with {horizon} steps").has_shape(2, horizon, 3)
    expect(seen["head"], "the head's `horizon` and `action_dim`").equals([horizon, 3])
    expect(seen["width"], "`lm_head.in_features`").equals(64)
    expect("head.ids" in seen["saved"], "whether a checkpoint holds the ids of the action tokens").is_false()
    seen = submission.observe("given_ids")
    for name, where in (
        ("again", "after a second call of `add_action_tokens`"),
        ("rebuilt", "in a policy that is built with as many rows as the trained one has"),
    ):
        expect(seen[name], f"the ids of the action tokens {where}").has_shape(BINS)
        changed = int((seen[name] != seen["first"]).sum())
        expect(changed, f"the number of action tokens that have another id {where}").equals(0)
    seen = submission.observe("devices", batch=random_batch(rng, 1))
    expect(seen["ids"], "the device of the action ids in a policy that was moved to `meta`").equals("meta")
    expect(seen["runs"], "whether new tensors are on the policy's device when the default device is another").equals(
        "yes"
    )


@check(
    kind="invariant",
    title="The tokenizer appends tokens and keeps ids",
    property="Ids must be given in order and never change, a known token must not be added again, and `add_tokens` must return how many are new. `add_action_tokens` must leave the id of every token that the tokenizer knew before.",
    instrument='python -c \'from policy import *; tokenizer = Tokenizer(["go", "to"]); print(tokenizer.add_tokens(["to", "stop"]), tokenizer.ids(["go", "stop"]))\'',
)
def test_tokenizer(submission: Submission) -> None:
    first, then = ["pick", "up", "the", "cup"], ["cup", "now", "pick", "slowly"]
    seen = submission.observe("tokenizer", first=first, then=then)
    expect(seen["lengths"], "the number of tokens before and after four are added of which two are known").equals(
        [4, 6]
    )
    expect(seen["added"], "what `add_tokens` returned for two known and two new tokens").equals(2)
    expect(seen["ids"], "the ids of `pick up the cup`, and then of `cup now pick slowly`,").equals(
        torch.tensor([0, 1, 2, 3, 3, 4, 0, 5])
    )
    ids = submission.observe("known_tokens", tokens=list(TEXT_TOKENS))
    for when, said in (("before", "before `add_action_tokens`"), ("after", "after `add_action_tokens`")):
        lost = [token for token, found in zip(TEXT_TOKENS, ids[when], strict=True) if found is None]
        expect(lost, f"the tokens of the pretrained tokenizer that it does not know {said}").equals([])
        expect(ids[when], f"the ids of the pretrained tokenizer's tokens {said}").equals(list(range(len(TEXT_TOKENS))))


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
    table = evidence["table"]
    one_id = beyond(table) or len(table["ids"].unique()) == 1
    return one_id and bool((table["embedded"] == table["input table"][-1]).all())


@wrong_fix(
    "modulo",
    says="The remainder of each id is the id of a word or of a reserved token. Actions now share rows with the words of the instruction.",
)
def recognise_modulo(evidence: Mapping[str, Any]) -> bool:
    table = evidence["table"]
    remainders = table["ids"] % table["rows read"]
    too_large = int(table["ids"].max()) >= table["rows read"]
    return too_large and torch.equal(table["embedded"], table["input table"][remainders])


@wrong_fix(
    "modulo_in_the_ids",
    says="The ids fit now, but the first of them belong to words: `go` and an action share one row, and training pulls it in two directions.",
)
def recognise_remainders(evidence: Mapping[str, Any]) -> bool:
    ids = evidence["table"]["ids"]
    return not beyond(evidence["table"]) and len(ids.unique()) == BINS and VOCABULARY.index("go") in ids.tolist()


@wrong_fix(
    "after_the_optimizer",
    says="The table is long enough, but the optimizer was built earlier and holds the old table. A parameter must exist when the optimizer that trains it is built.",
)
def recognise_late(evidence: Mapping[str, Any]) -> bool:
    rows = evidence["rows_before_and_after"]
    stale = evidence["optimized"]["others"] > 0
    return not beyond(evidence["table"]) and stale and torch.equal(rows["before"], rows["after"])


@wrong_fix(
    "input_only",
    says="The input table grew and the output head did not: the two are no longer tied.",
)
def recognise_short_head(evidence: Mapping[str, Any]) -> bool:
    table = evidence["table"]
    return table["rows said"] <= int(table["ids"].max()) < table["rows read"]


@wrong_fix(
    "copied_head",
    says="The output head is long enough, but its rows are not the input table's: a token is read from one row and predicted from another.",
)
def recognise_copy(evidence: Mapping[str, Any]) -> bool:
    seen = evidence["tied"]
    return not beyond(evidence["table"]) and torch.equal(seen["built"], seen["before"])


@wrong_fix(
    "new_table",
    says="The new table is long enough, but everything the base had learnt about the words is gone. Keep the old rows and initialise only the new ones.",
)
def recognise_new_table(evidence: Mapping[str, Any]) -> bool:
    if beyond(evidence["table"]):
        return False
    with safe_open(BASE, framework="pt") as file:
        pretrained = file.get_tensor("language_model.embed_tokens.weight")
    apart = torch.cdist(evidence["table"]["input table"], pretrained)
    return float(apart.min()) > 1e-3


def beyond(table: Mapping[str, Any]) -> bool:
    """Whether an action id has no input row, or no output row."""
    return int(table["ids"].max()) >= min(table["rows read"], table["rows said"])


def same_rows(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    """How many rows of two input tables are equal."""
    return int((one["input table"] == other["input table"]).all(dim=-1).sum())


def relative_error(measured: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value; infinite for another shape."""
    if measured.shape != expected.shape:
        return float("inf")
    return float((measured - expected).abs().max() / expected.abs().max().clamp(min=1e-9))


def after_steps(gradients: list[float], weight_decay: float) -> float:
    """What AdamW of the starter makes of the value 1 in a step for each gradient."""
    value = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
    optimizer = torch.optim.AdamW([value], lr=3e-3, betas=(0.9, 0.95), weight_decay=weight_decay)
    for gradient in gradients:
        value.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
    return float(value.detach())


def batch_of_every_bin(rng: Rng, size: int) -> dict[str, Tensor]:
    """A random batch without padding whose actions, in environment units, cover as many bins as fit."""
    batch = random_batch(rng, size)
    del batch["action_is_pad"]
    cells = torch.cat([rng.permutation(BINS) for _ in range(-(-size * 12 // BINS))])[: size * 12]
    normalised = (cells + rng.uniform(size * 12, low=0.1, high=0.9)) / BINS * 2 - 1
    return {**batch, "action": normalised.view(size, 4, 3) * SCALE}


def padded(rng: Rng, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The batch with shorter instructions and padded last steps, the first frame with one step that is not padding.

    Words that the attention mask hides stay in the batch.
    """
    size = len(batch["state"])
    steps, words = rng.integers(1, 5, size), rng.integers(1, 4, size)
    steps[0] = 1
    is_word = torch.arange(batch["input_ids"].shape[1])[None] < words[:, None]
    return {
        **batch,
        "attention_mask": is_word.long(),
        "action_is_pad": torch.arange(4)[None] >= steps[:, None],
    }


def all_padded(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The batch with every step marked as padding."""
    return {**batch, "action_is_pad": torch.ones(batch["action"].shape[:2], dtype=torch.bool)}


@functools.cache
def base() -> Policy:
    """The pretrained base in evaluation mode. Only the parts before the head are used."""
    return Policy.from_base().eval()


def with_table(table: Tensor) -> Policy:
    """The pretrained base with another input table, which gets gradients."""
    policy = Policy.from_base().eval()
    policy.language_model.embed_tokens = nn.Embedding(*table.shape)
    with torch.no_grad():
        policy.language_model.embed_tokens.weight.copy_(table)
    return policy


def next_tokens(policy: Policy, batch: dict[str, Tensor], said: Tensor) -> Tensor:
    """The logits of every token after the observation and after each of `said` (B, S): (B, S + 1, rows)."""
    prefix, mask = policy.embed_prefix(*(batch[name] for name in OBSERVATION_KEYS))
    sequence = torch.cat([prefix, policy.embed_instruction(said)], dim=1)
    hidden = policy.run_language_model(sequence, torch.cat([mask, torch.ones_like(said)], dim=1))
    return hidden[:, prefix.shape[1] - 1 :] @ policy.language_model.embed_tokens.weight.T


def reference(batch: dict[str, Tensor], rows: Tensor, unused: int) -> tuple[float, dict[str, Tensor]]:
    """The loss and its gradients, with the rows of the words, `rows`, and zeros for unused tokens."""
    words = base().language_model.embed_tokens.weight.detach()
    policy = with_table(torch.cat([words, rows, torch.zeros(unused, rows.shape[1])]))
    bins = ((batch["action"].double() / SCALE.double() + 1) / 2 * BINS).floor().long().clamp(0, BINS - 1)
    ids = bins.flatten(1) + WORDS
    logits = next_tokens(policy, batch, ids[:, :-1])
    error = F.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="none").view(len(ids), 4, 3).mean(dim=-1)
    is_step = ~batch.get("action_is_pad", torch.zeros(error.shape, dtype=torch.bool))
    loss = (error * is_step).sum() / is_step.sum().clamp(min=1)
    of = {
        "table": policy.language_model.embed_tokens.weight,
        "vision": next(policy.vision.parameters()),
        "projector": next(policy.projector.parameters()),
        "proprioception": policy.proprioception.weight,
        "language_model": next(policy.language_model.layers.parameters()),
    }
    gradients = dict(zip(of, torch.autograd.grad(loss, list(of.values())), strict=True))
    gradients["table"] = gradients["table"][: WORDS + BINS]
    return float(loss.detach()), gradients


def clear_rows(rng: Rng, batch: dict[str, Tensor], length: float) -> tuple[Tensor, Tensor]:
    """Rows for the actions with clear decisions, and the chunk (B, 4, 3) that is generated with them.

    At each place the most likely action is ahead of the next by more than rounding can change. Where the attention
    mask hides words, reading them would give another chunk.
    """
    words = base().language_model.embed_tokens.weight.detach()
    everything = {**batch, "attention_mask": torch.ones_like(batch["attention_mask"])}
    hides = not torch.equal(batch["attention_mask"], everything["attention_mask"])
    while True:
        rows = rng.normal(BINS, words.shape[1], std=length)
        policy = with_table(torch.cat([words, rows]))
        bins, ahead = generated(policy, batch)
        decided_by_mask = not hides or not torch.equal(bins, generated(policy, everything)[0])
        if ahead > 1e-3 * length and decided_by_mask:
            return rows, ((bins + 0.5) / BINS * 2 - 1).view(-1, 4, 3) * SCALE


@torch.no_grad()
def generated(policy: Policy, batch: dict[str, Tensor]) -> tuple[Tensor, float]:
    """The most likely bins (B, 12), each after those before it, and by how little one was ahead of the next."""
    bins, ahead = torch.empty(len(batch["state"]), 0, dtype=torch.long), float("inf")
    for _ in range(12):
        logits = next_tokens(policy, batch, bins + WORDS)[:, -1, WORDS:]
        best = logits.topk(2, dim=-1)
        ahead = min(ahead, float((best.values[:, 0] - best.values[:, 1]).min()))
        bins = torch.cat([bins, best.indices[:, :1]], dim=1)
    return bins, ahead
