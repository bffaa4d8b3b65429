"""What is an input that must matter, and what is bookkeeping: known by name, unless declared."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from debugkit.declare import Declare
from debugkit.interventions.batch_roles import labels, modalities, padding_mask, target
from debugkit.setup import TrainingSetup

MODALITIES = ("pixel_values", "input_ids", "state", "observation.images.top", "observation.state", "images.0", "rgb")
BOOKKEEPING = (
    *("attention_mask", "action", "action_is_pad", "next.state", "episode_index", "image_sizes", "image_grid_thw"),
    *("num_tokens", "text_lengths", "frame_index", "observation.images.top_is_pad", "image_masks.base", "labels"),
    *("image_id", "num_frames", "state_mean", "timestamp", "state_mask", "future_images"),
)


def setup(batch: dict[str, torch.Tensor], **declared: object) -> TrainingSetup:
    return TrainingSetup.of(nn.Linear(2, 2), batch, declare=Declare(**declared))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MODALITIES)
def test_usual_names_of_modalities_are_known(name: str) -> None:
    assert list(modalities(setup({name: torch.zeros(4, 3)}))) == [name]


@pytest.mark.parametrize("name", BOOKKEEPING)
def test_bookkeeping_is_no_modality(name: str) -> None:
    assert modalities(setup({name: torch.zeros(4, 3), "other": torch.zeros(4)})) == {}


def test_text_moves_with_its_mask() -> None:
    batch = {"input_ids": torch.zeros(4, 3), "attention_mask": torch.ones(4, 3), "state": torch.zeros(4, 3)}
    assert modalities(setup(batch)) == {"input_ids": ("input_ids", "attention_mask"), "state": ("state",)}


def test_declarations_win_over_names() -> None:
    batch = {"a": torch.zeros(4, 3), "b": torch.ones(4, 3), "c": torch.zeros(4).long(), "state": torch.zeros(4, 2)}
    declared = setup(batch, modalities=("a",), padding_mask="b", labels="c", target="a")
    assert modalities(declared) == {"a": ("a",)}
    found = (labels(declared), target(declared))
    assert [each and each[0] for each in found] == ["c", "a"]
    mask = padding_mask(declared)
    assert mask is not None
    assert mask.path == "b"


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
