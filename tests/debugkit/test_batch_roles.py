"""What is an input that must matter, and what is bookkeeping: known by name, unless declared."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from debugkit.declare import Declare
from debugkit.interventions.batch_roles import labels, modalities, target
from debugkit.interventions.padding import padding_mask
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
