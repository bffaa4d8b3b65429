"""Every tokenizer and every side of the padding: the ids, the mask, and encoders that do not read padding."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from random import Random
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from labs.mystery import encoder_parts
from labs.mystery.aspects import BY_ID as ASPECTS
from labs.mystery.compose import DIMENSIONS, Program, compose
from labs.mystery.healthy import Running, _module
from labs.mystery.operators import OPERATORS, Operator
from labs.mystery.plant import CLEARLY, failing

SENTENCES = ["take the red", "now", "move the blue left slowly now now now"]
READ = {
    "words": ["<bos> take the red", "<bos> now", "<bos> move the blue left slowly"],
    "ended": ["take the red <end>", "now <end>", "move the blue left slowly <end>"],
    "pieces": [
        "<s> _ta ke _the _re d </s>",
        "<s> _now </s>",
        "<s> _mo ve _the _bl ue _le ft _slow </s>",
    ],
    "letters": ["^take the red", "^now", "^move the blue left slow"],
}
"""The tokens of the sentences, by form."""


class Fixed(Random):
    """Draws the given forms; everything else is drawn by the seed."""

    def __init__(self, forms: Mapping[str, str]) -> None:
        super().__init__(1)
        self.forms = forms

    def choice(self, seq: Any) -> Any:
        wanted = [one for name, one in self.forms.items() if seq == DIMENSIONS[name]]
        return wanted[0] if wanted else super().choice(seq)


def policy_of(**forms: str) -> tuple[Program, ModuleType]:
    """A program with the given forms, and its policy.py."""
    program = compose(Fixed(forms))
    assert {name: program.forms[name] for name in forms} == forms
    return program, _module("policy", program.files["policy.py"])


@pytest.mark.parametrize("padding", DIMENSIONS["padding"])
@pytest.mark.parametrize("tokenizer", DIMENSIONS["tokenizer"])
def test_a_sentence_becomes_its_tokens(tokenizer: str, padding: str) -> None:
    program, policy = policy_of(tokenizer=tokenizer, padding=padding)
    tokenize = getattr(policy, program.names["tokenize"])
    input_ids, attention_mask = tokenize(SENTENCES)
    assert input_ids.shape == attention_mask.shape == (3, inspect.signature(tokenize).parameters["length"].default)
    assert input_ids.dtype == attention_mask.dtype == torch.long
    between = "" if tokenizer == "letters" else " "
    real = [row[mask > 0].tolist() for row, mask in zip(input_ids, attention_mask, strict=True)]
    assert [between.join(policy.VOCABULARY[one] for one in row) for row in real] == READ[tokenizer]
    assert (input_ids[attention_mask == 0] == policy.PAD).all()
    ordered = attention_mask.sort(dim=1, descending=padding == "right").values
    assert torch.equal(attention_mask, ordered)
    assert attention_mask.sum(dim=1).tolist()[2] == input_ids.shape[1]


@pytest.mark.parametrize("padding", DIMENSIONS["padding"])
@pytest.mark.parametrize("text", DIMENSIONS["text"])
def test_an_instruction_means_the_same_with_more_padding(text: str, padding: str) -> None:
    program, policy = policy_of(text=text, padding=padding)
    torch.manual_seed(0)
    encoder = getattr(policy, program.names["Text"])(getattr(policy, program.names["Config"])()).eval()
    input_ids, attention_mask = getattr(policy, program.names["tokenize"])(SENTENCES)
    more = (0, 3) if padding == "right" else (3, 0)
    feature = encoder(input_ids, attention_mask)
    wide = encoder(F.pad(input_ids, more, value=policy.PAD), F.pad(attention_mask, more))
    torch.testing.assert_close(wide, feature, rtol=1e-4, atol=1e-5)
    changed = input_ids.clone()
    changed[0, attention_mask[0].nonzero()[1]] += 1
    assert not torch.allclose(encoder(changed, attention_mask)[0], feature[0], atol=1e-4)


@pytest.mark.parametrize("padding", DIMENSIONS["padding"])
@pytest.mark.parametrize("tokenizer", DIMENSIONS["tokenizer"])
def test_a_fault_of_a_tokenizer_is_seen_in_every_form(tokenizer: str, padding: str) -> None:
    program, _ = policy_of(tokenizer=tokenizer, padding=padding)
    assert not_seen(program, [one for one in OPERATORS if one.shows == "tokens"]) == []


@pytest.mark.parametrize("padding", DIMENSIONS["padding"])
@pytest.mark.parametrize("text", DIMENSIONS["text"])
def test_a_fault_of_an_encoder_is_seen_on_both_sides(text: str, padding: str) -> None:
    program, _ = policy_of(text=text, padding=padding)
    placed = [one for one in OPERATORS if one.place == "text" and one.planted(program, program.files)]
    assert {"padding_read", "vocabulary_short"} <= {one.id for one in placed}
    assert not_seen(program, placed) == []


def not_seen(program: Program, operators: Sequence[Operator]) -> list[str]:
    """The operators that have no place in a program, or whose aspect does not see them."""
    missed, healthy = [], Running(program)
    for one in operators:
        files = one.planted(program, program.files)
        seen = files and failing(healthy, Running(program, files), [ASPECTS[one.shows]], one.id, CLEARLY)
        missed += [] if seen else [one.id]
    return missed


def test_every_side_has_every_encoder() -> None:
    assert set(encoder_parts.TEXTS) == set(encoder_parts.TEXTS_FROM_THE_LEFT)
