import pytest
import torch

from labs.vla.language import (
    BOS_ID,
    COLOUR_IDS,
    COLOURS,
    INSTRUCTION_TEMPLATES,
    PAD_ID,
    VOCABULARY,
    detokenize,
    tokenize,
)

EVERY_INSTRUCTION = [template.format(colour=colour) for template in INSTRUCTION_TEMPLATES for colour in COLOURS]


def test_every_instruction_fits_and_comes_back():
    input_ids, _ = tokenize(EVERY_INSTRUCTION)
    assert detokenize(input_ids) == EVERY_INSTRUCTION
    assert input_ids.max() < len(VOCABULARY)


def test_the_mask_covers_exactly_the_tokens_and_padding_is_on_the_right():
    input_ids, attention_mask = tokenize(EVERY_INSTRUCTION, length=12)
    assert torch.equal(attention_mask.bool(), input_ids != PAD_ID)
    assert (attention_mask.diff(dim=-1) <= 0).all()
    assert (input_ids[:, 0] == BOS_ID).all()
    assert attention_mask.sum(-1).tolist() == [1 + len(sentence.split()) for sentence in EVERY_INSTRUCTION]


def test_an_instruction_names_exactly_one_colour():
    input_ids, _ = tokenize(EVERY_INSTRUCTION)
    assert (torch.isin(input_ids, torch.tensor(COLOUR_IDS)).sum(-1) == 1).all()


def test_a_long_sentence_is_cut_at_the_length():
    input_ids, attention_mask = tokenize(["please reach the red block now"], length=3)
    assert detokenize(input_ids) == ["please reach"]
    assert attention_mask.tolist() == [[1, 1, 1]]


def test_an_unknown_word_is_named():
    with pytest.raises(ValueError, match=r"'purple' in 'reach purple' is not in the vocabulary"):
        tokenize(["reach purple"])
