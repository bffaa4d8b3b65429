"""Checkpoints for checks of loading: the pretrained base, and files that fit a policy built on it or do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from safetensors.torch import load_file
from torch import Tensor

from labs.grading import Rng
from labs.vla.policy import BASE_CHECKPOINT, BASE_PARTS

EMBEDDINGS, WORD_HEAD = "language_model.embed_tokens.weight", "word_head.weight"
"""Two names of one tensor, in a policy whose word head shares its weight with the word embeddings."""


def base() -> dict[str, Tensor]:
    """The tensors of the pretrained base by their names in the file."""
    return load_file(BASE_CHECKPOINT)


def another_checkpoint(rng: Rng) -> dict[str, Tensor]:
    """The base with every number changed by about a tenth, so that no two tensors are equal."""
    return {name: value * (1 + rng.normal(*value.shape, std=0.1)) for name, value in base().items()}


def held_by(saved: Mapping[str, Tensor], holds: Mapping[str, Tensor]) -> set[str]:
    """The names of a checkpoint whose tensors a policy holds bit for bit, wherever in the part of that name."""
    found = set()
    for name, value in saved.items():
        part, _, rest = name.partition(".")
        places = [held for own, held in holds.items() if own.startswith(part) and own.endswith(f".{rest}")]
        if any(held.shape == value.shape and torch.equal(held, value) for held in places):
            found.add(name)
    return found


def too_few(rng: Rng) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Checkpoints without one tensor, and its name: one of each part, the tower's first, and the shared one."""
    for name in (*_one_of_each_part(rng), "vision.embeddings.patch_embedding.weight", EMBEDDINGS):
        yield name, {own: value for own, value in base().items() if own != name}


def too_many(rng: Rng) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Checkpoints with one tensor for which there is no place, and its name."""
    for name in (
        "adapter.weight",
        "vision.head.probe",
        "language_model.layers.2.mlp.up_proj.weight",
        "tactile.vision.weight",
        "projector.4.bias",
    ):
        yield name, {**base(), name: rng.normal(rng.integer(2, 9))}


def other_shapes(rng: Rng) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Checkpoints in which one tensor has another shape, and its name; a plain `copy_` would accept some of them."""
    for name in (*_one_of_each_part(rng), EMBEDDINGS):
        value = base()[name]
        yield name, {**base(), name: torch.cat([value, value[-1:]])}
    yield "projector.2.bias", {**base(), "projector.2.bias": torch.ones(1)}
    yield "proprioception.bias", {**base(), "proprioception.bias": base()["proprioception.bias"][None]}


def tail(name: str) -> str:
    """The last two parts of a name, which no wrapper around a module changes."""
    return ".".join(name.split(".")[-2:])


def _one_of_each_part(rng: Rng) -> list[str]:
    names = {part: sorted(name for name in base() if name.startswith(f"{part}.")) for part in BASE_PARTS}
    return [rng.choice([name for name in names[part] if name != EMBEDDINGS]) for part in BASE_PARTS]
