"""Compare the keys that each attention may see with the padding of the token ids that were embedded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.nn import functional as F

from debugkit._torch_private import without_torch_function
from debugkit.finding import SourceLine
from debugkit.frames import caller_of_operation, user_line
from debugkit.interventions.batch_roles import is_index
from debugkit.recorders.function_calls import FunctionObserver
from debugkit.recorders.function_probe import FunctionProbe
from debugkit.rules.dk326_mask_hides_content import AttentionMasks, InvertedMask
from debugkit.setup import TrainingSetup

_HIDDEN = -1e4
"""An additive mask hides a key with this or less; float16 reaches -65504."""
_MOST_IDS, _MOST_MASKS = 4, 64
_MOST_COMPARED = 2**21
_FEWEST_PADDED_ROWS = 2
_FEWEST_IDS = 3
_MOST_VALUES = 4
"""Values at an end of the rows that are tried, smallest first."""


@dataclass(frozen=True)
class _Mask:
    visible: Tensor
    """(B, keys) bool: whether any query may see the key."""
    operation: str
    module: str | None
    at: SourceLine | None


class MasksProbe(FunctionProbe[AttentionMasks, "_Calls"]):
    """Keeps boolean tensors of the masks' rows and keys until the step ends, and reads them then."""

    watch_steps = 3
    partial = True

    def __init__(self, setup: TrainingSetup) -> None:
        running: list[str] = []
        super().__init__(setup, _Calls(running), running)
        self._last = AttentionMasks(0, None)

    @torch.no_grad()
    def end_step(self, _step: int, /) -> None:
        with without_torch_function():
            padding = [found for ids in self.calls.ids for found in _paddings_of(ids)]
            pairs = [(mask, found) for mask in self.calls.masks for found in padding if _fits(mask, found)]
            inverted = [(mask, found) for mask, found in pairs if _shows_only(found, mask.visible)]
        self.calls.reset()
        self._last = AttentionMasks(
            self._last.compared + len(pairs), self._last.inverted or (_described(inverted) if inverted else None)
        )

    def observed(self) -> AttentionMasks:
        return self._last


def _described(inverted: Sequence[tuple[_Mask, Tensor]]) -> InvertedMask:
    mask, padding = inverted[0]
    hidden = int(padding.sum())
    return InvertedMask(
        operation=mask.operation,
        module=mask.module,
        at=mask.at,
        visible=int(mask.visible.sum()),
        tokens=padding.numel() - hidden,
        padding=hidden,
        calls=len(inverted),
        others=mask.visible.shape[1] - padding.shape[1],
    )


def _is_batch_of_ids(ids: Any) -> TypeGuard[Tensor]:
    return isinstance(ids, Tensor) and ids.ndim == 2 and is_index(ids) and len(ids) >= _FEWEST_PADDED_ROWS


def _key_padding_mask(_args: Any, kwargs: Any) -> Tensor | None:
    """(B, S), True or minus infinity for a key that is ignored."""
    mask = kwargs.get("key_padding_mask")
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        return None
    return ~mask if mask.dtype == torch.bool else mask > _HIDDEN


def _attention_mask(args: Any, kwargs: Any) -> Tensor | None:
    """(B, heads, queries, S), True or 0 for a key that takes part."""
    mask = kwargs.get("attn_mask", args[3] if len(args) > 3 else None)
    if not isinstance(mask, Tensor) or mask.ndim < 3:
        return None
    return _of_keys(mask if mask.dtype == torch.bool else mask > _HIDDEN)


def _filled_scores(args: Any, kwargs: Any) -> Tensor | None:
    """Scores (B, …, S) and a mask that broadcasts to them, True where a score becomes about minus infinity.

    PyTorch makes additive masks of boolean ones in the same way; those are no scores.
    """
    caller = caller_of_operation(sys._getframe(1))
    if caller is not None and caller.f_code.co_filename == F.__file__:
        return None
    given = [*args, *(kwargs[key] for key in ("mask", "value") if key in kwargs)]
    if len(given) != 3 or not isinstance(given[0], Tensor) or not isinstance(given[1], Tensor):
        return None
    scores, mask, value = given
    if isinstance(value, Tensor) or not scores.is_floating_point() or value > _HIDDEN or mask.ndim != scores.ndim:
        return None
    return _of_keys(~mask) if mask.dtype == torch.bool and len(mask) == len(scores) else None


def _of_keys(visible: Tensor) -> Tensor:
    return visible.flatten(1, -2).any(1) if visible.ndim > 2 else visible


_READS: dict[str, Callable[[Any, Any], Tensor | None]] = {
    "embedding": lambda _args, _kwargs: None,
    "multi_head_attention_forward": _key_padding_mask,
    "scaled_dot_product_attention": _attention_mask,
    "masked_fill": _filled_scores,
    "masked_fill_": _filled_scores,
}


class _Calls(FunctionObserver):
    functions = _READS

    def __init__(self, running: list[str]) -> None:
        self._running = running
        self.reset()

    def reset(self) -> None:
        self.ids: list[Tensor] = []
        self.masks: list[_Mask] = []

    def before(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], /) -> None:
        with torch.no_grad():  # no decorator, whose frame would be between this one and the caller's
            self._note(name, args, kwargs)

    def _note(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        if name == "embedding":
            ids = args[0] if args else kwargs.get("input")
            if _is_batch_of_ids(ids) and len(self.ids) < _MOST_IDS:
                self.ids.append(ids.detach())
        elif len(self.masks) < _MOST_MASKS and (visible := _READS[name](args, kwargs)) is not None:
            module = self._running[-1] if self._running else None
            self.masks.append(_Mask(visible, name, module, user_line()))


def _paddings_of(ids: Tensor) -> Iterator[Tensor]:
    """(B, L) bool, True for what may be the padding: one for each value at an end of rows, and none for most ids."""
    for right in (True, False):
        end = ids if right else ids.flip(1)
        for value in torch.unique(end[:, -1])[:_MOST_VALUES]:
            is_value = end == value
            run = is_value.flip(1).cumprod(1).flip(1).bool()
            lengths = run.sum(1)
            is_shown = (
                bool((is_value == run).all())  # nowhere else
                and int((lengths > 0).sum()) >= _FEWEST_PADDED_ROWS
                and int(lengths.min()) < int(lengths.max())
                and int(lengths.max()) < ids.shape[1]  # every row has a token
                and len(torch.unique(end[~run])) >= _FEWEST_IDS
            )
            if is_shown:
                yield run if right else run.flip(1)


def _fits(mask: _Mask, padding: Tensor) -> bool:
    """Whether the mask may cover these ids: a policy's mask also has the image tokens and the state beside the text."""
    rows, keys = mask.visible.shape
    is_covered = rows == len(padding) and padding.shape[1] <= keys
    windows = (keys - padding.shape[1] + 1) * padding.numel()
    return is_covered and windows <= _MOST_COMPARED and mask.visible.device == padding.device


def _shows_only(padding: Tensor, visible: Tensor) -> bool:
    """Whether keys in a row are visible exactly where the ids are padding.

    The rows differ in length, so no shift makes a correct mask equal to the padding.
    """
    windows = visible.unfold(1, padding.shape[1], 1)  # (B, places, L)
    return bool((windows == padding[:, None]).flatten(2).all(2).all(0).any())
