"""The padding of a batch: by its mask, by lengths, or by ids that end in the padding id."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from debugkit.interventions.batch_roles import entry, is_index, labels, target, token_ids
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_MASK_NAMES = re.compile(r"pad|mask|valid")
_LENGTH_NAMES = re.compile(r"(.*_)?(lengths?|lens?)")
_SHORTEST, _FEWEST_PADDED = 2, 2


@dataclass(frozen=True, eq=False)
class PaddingMask:
    """A mask of the positions of a batch, (B, L)."""

    path: str
    valid: torch.Tensor
    """(B, L) bool, True for content."""
    named: bool
    """Whether it is declared or named `attention_mask`. Otherwise what it marks was found from the other entries."""
    says: Literal["content", "padding", "nothing"] = "content"
    """What an `attention_mask` is 1 for, by the other entries: content, as it should be; the padding; everything."""


def padding_mask(setup: TrainingSetup) -> PaddingMask | None:
    """The mask of ones and zeros, or one of another name of which another entry shows what it marks."""
    declared = setup.declare.padding_mask
    found = entry(setup, (declared,) if declared else ("attention_mask",))
    if found is None:
        return None if declared else _mask_by_evidence(setup)
    path, mask = found
    if not is_zero_or_one(mask):
        return None
    if declared is None and _is_inverted(setup, path, mask.bool()):
        return PaddingMask(path, ~mask.bool(), named=True, says="padding")
    return PaddingMask(path, mask.bool(), named=True)


def padding_that_the_mask_leaves_out(setup: TrainingSetup) -> PaddingMask | None:
    """The padding of token ids whose `attention_mask` is 1 everywhere; None unless the ids show it beyond doubt.

    The ids then end (or begin) with different numbers of the padding id: in two rows or more with two or more of them,
    in one row with none, and nowhere else. The padding id is that of a configuration or an embedding, or zero.
    """
    found, mask = token_ids(setup), padding_mask(setup)
    if found is None or mask is None or not mask.named or setup.declare.padding_mask is not None:
        return None
    ids = found[1]
    if ids.shape != mask.valid.shape or not bool(mask.valid.all()):
        return None
    for id_ in sorted(_padding_ids(setup)):
        padded = ids == id_
        if _ends_in_padding(padded):
            return PaddingMask(mask.path, ~padded, named=False, says="nothing")
    return None


def padding_by_ids(setup: TrainingSetup) -> Iterator[PaddingMask]:
    """The padding of each (B, L) entry of ids that shows it beyond doubt by the ids themselves.

    As in `padding_that_the_mask_leaves_out`, but where the model names its padding id, each row may be padded. A first
    column that holds nothing but the padding id starts a decoder.
    """
    named = _named_padding_ids(setup)
    for path, ids in tensors_in(setup.batch):
        if not is_index(ids) or ids.ndim != 2 or is_zero_or_one(ids):
            continue
        for id_ in sorted({0, *named}):
            padded = ids == id_
            if bool(padded[:, 0].all()):
                padded = padded.clone()
                padded[:, 0] = False
            if _ends_in_padding(padded, all_may_be=id_ in named):
                yield PaddingMask(path, ~padded, named=False, says="nothing")


def padding_by_length(setup: TrainingSetup) -> Iterator[PaddingMask]:
    """The steps after the end of each sequence, by a (B,) entry of lengths, where another entry does not change."""
    for path, lengths in tensors_in(setup.batch):
        if not _LENGTH_NAMES.fullmatch(path.rpartition(".")[2].lower()) or not is_index(lengths) or lengths.ndim != 1:
            continue
        longest = int(lengths.max())
        if longest < _SHORTEST or int(lengths.min()) < 1 or int(lengths.min()) == longest:
            continue
        valid = torch.arange(longest, device=lengths.device) < lengths[:, None]
        if any(ends_in_one_value(other, valid) for _, other in tensors_in(setup.batch)):
            yield PaddingMask(path, valid, named=False)


def _ends_in_padding(padded: torch.Tensor, *, all_may_be: bool = False) -> bool:
    """Whether two rows or more end (or begin) with two padded positions or more, one with none, and none inside.

    With `all_may_be`, the rows need only have different numbers of them.
    """
    counts = padded.sum(1)
    if int((counts >= _SHORTEST).sum()) < _FEWEST_PADDED:
        return False
    if bool((counts > 0).all()) and not (all_may_be and bool((counts != counts[0]).any())):
        return False
    return _marks_one_end(~padded)


def _padding_ids(setup: TrainingSetup) -> set[int]:
    return {0, *_named_padding_ids(setup)}


def _named_padding_ids(setup: TrainingSetup) -> set[int]:
    """Those of the configurations and embeddings."""
    configs = [getattr(module, "config", None) for module in setup.model.modules()]
    held = [getattr(config, "pad_token_id", None) for config in configs]
    held += [getattr(module, "padding_idx", None) for module in setup.model.modules()]
    return {id_ for id_ in held if isinstance(id_, int)}


def _is_inverted(setup: TrainingSetup, path: str, mask: torch.Tensor) -> bool:
    """Whether another entry is constant where the mask is 1, which is at one end of each row, and varies elsewhere."""
    no_input = {found[0] for found in (labels(setup), target(setup)) if found is not None}
    others = [other for name, other in tensors_in(setup.batch) if name != path and name not in no_input]
    if not _marks_one_end(~mask) or any(_shows_padding(other, mask) for other in others):
        return False
    return any(_shows_padding(other, ~mask) for other in others)


def _mask_by_evidence(setup: TrainingSetup) -> PaddingMask | None:
    """A (B, L) entry with pad, mask or valid in its name that marks one end of each row.

    Some other input must be constant where it says padding and vary elsewhere, which also shows which value is padding.
    """
    entries = list(tensors_in(setup.batch))
    no_input = {found[0] for found in (labels(setup), target(setup)) if found is not None}
    for path, mask in entries:
        if not names_a_mask(path) or not is_zero_or_one(mask):
            continue
        others = [other for name, other in entries if name != path and name not in no_input]
        for valid in (mask.bool(), ~mask.bool()):
            if _marks_one_end(valid) and any(_shows_padding(other, valid) for other in others):
                return PaddingMask(path, valid, named=False)
    return None


def names_a_mask(path: str) -> bool:
    """Whether the last part of a path is the name of a mask."""
    return _MASK_NAMES.search(path.rpartition(".")[2].lower()) is not None


def is_zero_or_one(mask: torch.Tensor) -> bool:
    """Whether a tensor is (B, L) and holds nothing but zeros and ones."""
    return mask.ndim == 2 and not mask.is_complex() and bool(((mask == 0) | (mask == 1)).all())


def _marks_one_end(valid: torch.Tensor) -> bool:
    """Whether each row has content, some row has padding, and the padding is at the same end of every row."""
    rows = valid if bool((~valid[:, -1:]).any()) else valid.flip(1)
    falls = (rows.int().diff(dim=1) <= 0).all()
    return bool(valid.any(1).all()) and not bool(valid.all()) and bool(falls)


def _shows_padding(tensor: torch.Tensor, valid: torch.Tensor) -> bool:
    if tensor.shape[:2] != valid.shape or tensor.ndim > 3:
        return False
    content = tensor[valid]
    return constant_at(tensor, ~valid) and not bool((content == content[:1]).all())


def constant_at(tensor: torch.Tensor, where: torch.Tensor) -> bool:
    """Whether a (B, L) or (B, L, D) tensor has the same value, or vector, at all these positions."""
    chosen = tensor[where]
    return bool((chosen == chosen[:1]).all())


def ends_in_one_value(tensor: torch.Tensor, valid: torch.Tensor) -> bool:
    """Whether each row of a (B, L) or (B, L, D) tensor keeps one value, or vector, in its padding, but not elsewhere.

    Rows may differ: padding that is normalised with the statistics of a data set has other values in each.
    """
    if tensor.shape[:2] != valid.shape or tensor.ndim > 3:
        return False
    moves = (tensor[:, 1:] != tensor[:, :-1]).flatten(2).any(2) if tensor.ndim == 3 else tensor[:, 1:] != tensor[:, :-1]
    inside, outside = valid[:, 1:] & valid[:, :-1], ~valid[:, 1:] & ~valid[:, :-1]
    return int(outside.sum()) >= _SHORTEST and not bool(moves[outside].any()) and bool(moves[inside].any())
