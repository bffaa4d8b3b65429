"""Computes the end of a text in one pass, and again with a cache of the keys and values of its beginning."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import token_ids
from debugkit.interventions.padding import padding_mask
from debugkit.interventions.passes import distance, floor_of_rounding, minimal_floor, rounding_of
from debugkit.randomness import same_randomness
from debugkit.rules.dk315_batched_differs_from_single import CachedGeneration
from debugkit.setup import TrainingSetup


def compare_cache(setup: TrainingSetup) -> CachedGeneration:
    """Compute one row twice as a whole, for the floor, and once in three parts."""
    model = setup.model
    ids = _one_text(setup)
    accepted = inspect.signature(model.forward).parameters
    if not {"input_ids", "past_key_values", "use_cache"} <= set(accepted):
        raise NotExamined("The model's forward takes no past_key_values, so there is no cache to compare.")
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise NotExamined("In an encoder-decoder model the cache belongs to the decoder, which is not compared.")
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
        max(10 * distance(whole, again), minimal_floor(model), floor_of_rounding(rounding_of(whole.dtype))),
        ids.shape[1] - 1,
    )


def _one_text(setup: TrainingSetup) -> torch.Tensor:
    """The longest row, (1, n), without its padding. Raises NotExamined."""
    found, mask = token_ids(setup), padding_mask(setup)
    if found is None or not isinstance(setup.batch, Mapping) or not isinstance(setup.model, nn.Module):
        raise NotExamined("The batch has no input_ids (B, L), so there is no text to compute in parts.")
    if any(key.startswith(("pixel_values", "input_features", "inputs_embeds")) for key in setup.batch):
        raise NotExamined("The text is mixed with other inputs, so its beginning cannot be computed alone.")
    ids = found[1]
    if mask is not None and mask.valid.shape == ids.shape:
        row = int(mask.valid.sum(1).argmax())
        ids = ids[row][mask.valid[row]][None]
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
