"""Which entry of a batch is its padding mask, and what the mask marks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from debugkit.interventions.padding import padding_mask
from debugkit.setup import TrainingSetup


def setup(batch: dict[str, torch.Tensor]) -> TrainingSetup:
    return TrainingSetup.of(nn.Linear(2, 2), batch)


def test_an_additive_mask_is_no_padding_mask() -> None:
    assert padding_mask(setup({"attention_mask": torch.tensor([[0.0, -1e9]])})) is None
    assert padding_mask(setup({"attention_mask": torch.ones(1, 1, 2, 2)})) is None
    assert padding_mask(setup({"attention_mask": torch.tensor([[True, False]])})) is not None


@pytest.mark.parametrize("name", ["src_key_padding_mask", "lang_masks", "is_pad", "valid"])
@pytest.mark.parametrize("marks_padding", [False, True])
@pytest.mark.parametrize("on_the_left", [False, True])
def test_a_mask_of_another_name_is_known_by_the_entry_that_is_constant_where_it_marks_padding(
    name: str, marks_padding: bool, on_the_left: bool
) -> None:
    valid = torch.arange(6)[None] < torch.tensor([6, 4, 2])[:, None]
    valid = valid.flip(1) if on_the_left else valid
    words = torch.randint(1, 9, (3, 6)).masked_fill(~valid, 0)
    found = padding_mask(setup({"words": words, name: ~valid if marks_padding else valid}))
    assert found is not None
    assert (found.path, found.named) == (name, False)
    assert found.valid.equal(valid)


def test_a_mask_that_no_entry_explains_or_that_marks_the_middle_is_no_padding_mask() -> None:
    valid = torch.arange(6)[None] < torch.tensor([6, 4, 2])[:, None]
    words = torch.randint(1, 9, (3, 6))
    assert padding_mask(setup({"words": words, "mask": valid})) is None
    hidden = torch.tensor([[1, 0, 1, 1, 0, 1]]).bool().expand(3, 6)
    assert padding_mask(setup({"words": words.masked_fill(~hidden, 0), "mask": hidden})) is None
    targets = torch.where(valid, words, -100)
    assert padding_mask(setup({"words": words, "labels": targets, "loss_mask": valid})) is None
