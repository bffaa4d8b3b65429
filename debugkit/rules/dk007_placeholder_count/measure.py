"""Counts the places and the features of every merge of image features into a sequence of embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.interventions.batch_roles import token_ids
from debugkit.recorders.function_calls import FunctionObserver
from debugkit.recorders.function_probe import FunctionProbe
from debugkit.rules.dk007_placeholder_count import Merge, Placeholders
from debugkit.setup import TrainingSetup

_SCATTERS = ("masked_scatter", "masked_scatter_", "__setitem__")
_TOKEN_FIELDS = ("image_token_id", "image_token_index", "audio_token_id", "audio_token_index")


class PlaceholdersProbe(FunctionProbe[Placeholders, "_Calls"]):
    """Keeps the counts on the device until the step is over."""

    partial = True

    def __init__(self, setup: TrainingSetup) -> None:
        calls = _Calls()
        super().__init__(setup, calls, calls.running)
        self._last = Placeholders(())

    def end_step(self, _step: int, /) -> None:
        merges = tuple(
            Merge(operation, sum(counts := per_sample.tolist()), tuple(counts), features, module, at)
            for operation, per_sample, features, module, at in self.calls.merges
        )
        self.calls.merges.clear()
        self._last = Placeholders(merges, *self._tokens())

    def observed(self) -> Placeholders:
        return self._last

    def _tokens(self) -> tuple[str | None, tuple[int, ...] | None]:
        found = token_ids(self.setup) if self.setup.batch is not None else None
        for field, token in _placeholder_tokens(self.setup.model):
            if found is not None:
                return field, tuple((found[1] == token).sum(1).tolist())
        return None, None


class _Calls(FunctionObserver):
    functions = _SCATTERS

    def __init__(self) -> None:
        self.running: list[str] = []
        self.merges: list[tuple[str, Tensor, int, str | None, SourceLine | None]] = []

    @torch.no_grad()
    def before(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], /) -> None:
        given = [*args, *(kwargs[key] for key in ("mask", "source") if key in kwargs)]
        if _is_merge(name, given):
            target, mask, source = given
            width = target.shape[-1]
            places = mask if mask.ndim == 2 else mask[..., 0]
            per_sample = places.expand(target.shape[:2]).sum(1)
            module = self.running[-1] if self.running else None
            self.merges.append((name, per_sample, source.numel() // width, module, user_line()))


def _is_merge(name: str, given: list[Any]) -> bool:
    """Whether features (…, D) are written into embeddings (B, L, D) by a mask over B and L.

    A source with the shape of the target is noise, not features.
    """
    if len(given) != 3 or not all(isinstance(value, Tensor) for value in given):
        return False
    target, mask, source = given
    if target.ndim != 3 or mask.dtype is not torch.bool or not target.is_floating_point():
        return False
    if source.ndim < 2 or source.shape[-1] != target.shape[-1] or source.shape == target.shape:
        return False
    if name == "__setitem__":  # a single row for all places is a mask token
        return bool(mask.shape == target.shape[:2] and source.numel() > target.shape[-1])
    return bool(mask.ndim == 3 and (mask.shape[-1] == 1 or mask.stride(-1) == 0 or _same_in_every_column(mask)))


def _same_in_every_column(mask: Tensor) -> bool:
    return bool((mask == mask[..., :1]).all())


def _placeholder_tokens(model: torch.nn.Module) -> Iterator[tuple[str, int]]:
    for module in model.modules():
        config = getattr(module, "config", None)
        for field in _TOKEN_FIELDS:
            token = getattr(config, field, None)
            if isinstance(token, int):
                yield field, token
