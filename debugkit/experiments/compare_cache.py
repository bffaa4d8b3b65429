"""Compute the end of a text in one pass and again with the keys and values of its beginning kept."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from debugkit.batch_roles import padding_mask, token_ids
from debugkit.experiments import experiment
from debugkit.experiments.passes import distance, minimal_floor
from debugkit.finding import NotExamined
from debugkit.observations.cached_generation import CachedGeneration
from debugkit.restore import same_randomness
from debugkit.subject import Subject


@experiment(CachedGeneration, cost=1, requires=("batch",))
def compare_cache(subject: Subject) -> CachedGeneration:
    """One row: twice whole, for the floor, and once in three parts."""
    model = subject.model
    ids = _one_text(subject)
    accepted = inspect.signature(model.forward).parameters
    if not {"input_ids", "past_key_values", "use_cache"} <= set(accepted):
        raise NotExamined("The model's forward takes no past_key_values, so it keeps no cache that could be compared.")
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise NotExamined("In an encoder-decoder the cache belongs to the decoder, which is not compared.")
    model.eval()
    with torch.no_grad(), same_randomness(0):
        whole, again = (_last_position(model(input_ids=ids, use_cache=False)) for _ in range(2))
        beginning = model(input_ids=ids[:, :-2], use_cache=True)
        cache = _get(beginning, "past_key_values")
        if cache is None:
            raise NotExamined("The model returned no past_key_values.")
        for index in (-2, -1):
            step = model(input_ids=ids[:, index:][:, :1], past_key_values=cache, use_cache=True)
            cache = _get(step, "past_key_values")
    return CachedGeneration(
        "",
        distance(whole, _last_position(step)),
        max(10 * distance(whole, again), minimal_floor(model)),
        ids.shape[1] - 1,
    )


def _one_text(subject: Subject) -> torch.Tensor:
    """The longest row, (1, n), without its padding. Raises NotExamined."""
    found, mask = token_ids(subject), padding_mask(subject)
    if found is None or not isinstance(subject.batch, Mapping) or not isinstance(subject.model, nn.Module):
        raise NotExamined("The batch has no input_ids (B, L), so there is no text to compute in parts.")
    if any(key.startswith(("pixel_values", "input_features", "inputs_embeds")) for key in subject.batch):
        raise NotExamined("The text is mixed with other inputs, so its beginning cannot be computed alone.")
    ids = found[1]
    if mask is not None and mask[1].shape == ids.shape:
        row = int(mask[1].sum(1).argmax())
        ids = ids[row][mask[1][row].bool()][None]
    if ids.shape[1] < 3:
        raise NotExamined("The text is shorter than three tokens.")
    return ids[:1]


def _last_position(output: Any) -> torch.Tensor:
    for name in ("logits", "last_hidden_state"):
        tensor = _get(output, name)
        if isinstance(tensor, torch.Tensor):
            return tensor[:, -1]
    raise NotExamined("The model returned neither logits nor a last_hidden_state.")


def _get(output: Any, name: str) -> Any:
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
