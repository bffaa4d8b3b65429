"""The roles of the entries of a batch: padding mask, token ids, labels, target action, modalities.

They are declared with `Declare`, or found by the names that Hugging Face, LeRobot and most data sets use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch

from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, tensors_in

_MASK_NAMES = re.compile(r"pad|mask|valid")
ACTION_NAMES = ("action", "actions")
PAD_NAMES = ("action_is_pad", "actions_is_pad")
"""Where the action's steps are padding."""
SHORT_PAD_NAMES = (*PAD_NAMES, "actions_id_pad", "is_pad")
"""The same, with names that only a (B, H) mask of booleans may have."""
_LENGTH_NAMES = re.compile(r"(.*_)?(lengths?|lens?)")
_MODALITIES = (
    ("text", r"(.*[._])?(input_ids|instruction|language|prompt|text|tokens?)([._].*)?"),
    ("image", r"(.*[._])?(pixel_values(_videos)?|images?|rgb|camera|video|frames?)([._].*)?"),
    ("state", r"(.*[._])?(state|proprio|proprioception|joints?|qpos)([._].*)?"),
    ("audio", r"(.*[._])?(input_features|input_values|audio)([._].*)?"),
)
_SHORTEST, _FEWEST_PADDED = 2, 2
BESIDE_TEXT = ("attention_mask", "token_type_ids", "position_ids")
_NO_MODALITY = re.compile(
    r"(.*[._])?(is_pad|masks?|ids?|index|idx|next|future|labels?|sizes?|thw|lengths?|num|count|timestamps?|mean|std)"
    r"([._].*)?|.*_(is_)?pad"
)


def entry(setup: TrainingSetup, names: tuple[str, ...]) -> tuple[str, torch.Tensor] | None:
    """The first tensor of the batch whose path, or its last part, is one of `names`."""
    found = list(tensors_in(setup.batch))
    for name in names:
        for path, tensor in found:
            if path == name or path.rpartition(".")[2] == name:
                return path, tensor
    return None


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


def labels(setup: TrainingSetup) -> tuple[str, torch.Tensor] | None:
    """The integer targets."""
    declared = setup.declare.labels
    found = entry(setup, (declared,) if declared else ("labels", "label", "targets"))
    return found if found is not None and is_index(found[1]) else None


def token_ids(setup: TrainingSetup) -> tuple[str, torch.Tensor] | None:
    """The (B, L) token ids of the text: by their name, or the only entry whose ids, or next ids, are the labels."""
    found = entry(setup, ("input_ids", "ids", "tokens", "idx"))
    if found is not None:
        return found if is_index(found[1]) and found[1].ndim == 2 else None
    learnt = labels(setup)
    if learnt is None or learnt[1].ndim != 2:
        return None
    path, label = learnt
    others = [(name, tensor) for name, tensor in tensors_in(setup.batch) if name != path and is_index(tensor)]
    repeated = [one for one in others if repeats_ids(label, one[1], label >= 0)]
    return repeated[0] if len(repeated) == 1 else None


def repeats_ids(label: torch.Tensor, ids: torch.Tensor, counted: torch.Tensor) -> bool:
    """Whether labels (B, L) are the ids of the same positions, or the next ones, at all positions that count."""
    if label.shape != ids.shape or not bool(counted.any()):
        return False
    same = bool((label == ids)[counted].all())
    return same or bool((label[:, :-1] == ids[:, 1:])[counted[:, :-1]].all())


def target(setup: TrainingSetup) -> tuple[str, torch.Tensor] | None:
    """The target action."""
    declared = setup.declare.target
    return entry(setup, (declared,) if declared else ACTION_NAMES)


def modalities(setup: TrainingSetup) -> dict[str, tuple[str, ...]]:
    """Each input that must matter, with its paths; text includes its mask and its positions."""
    paths = [path for path, _ in _rows(setup)]
    if setup.declare.modalities:
        chosen = {key: tuple(path for path in paths if within(path, key)) for key in setup.declare.modalities}
    else:
        chosen = {path: (path,) for path in paths if _modality(path) is not None}
    beside = tuple(path for path in paths if path.rpartition(".")[2] in BESIDE_TEXT)
    return {
        name: (*parts, *(path for path in beside if path not in parts)) if _modality(name) == "text" else parts
        for name, parts in chosen.items()
    }


def special_ids(setup: TrainingSetup) -> frozenset[int]:
    """Token ids with a special meaning in a configuration: padding, end, image placeholder."""
    found: set[int] = set()
    for module in setup.model.modules():
        config = getattr(module, "config", None)
        for part in (config, getattr(config, "text_config", None)):
            for name, value in vars(part).items() if hasattr(part, "__dict__") else ():
                if name.endswith(("_token_id", "_token_index")):
                    found |= {item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int)}
    return frozenset(found)


def within(path: str, key: str) -> bool:
    """Whether a tensor's path is the key, or is nested under it."""
    return path == key or path.startswith(f"{key}.") or path.endswith(f".{key}")


def is_index(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds integers, such as ids and labels."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)


def _modality(path: str) -> str | None:
    lowered = path.lower()
    kind = next((name for name, pattern in _MODALITIES if re.fullmatch(pattern, lowered)), None)
    if kind is None or lowered.endswith("input_ids"):
        return kind
    return None if _NO_MODALITY.fullmatch(lowered) else kind


def _rows(setup: TrainingSetup) -> Iterator[tuple[str, torch.Tensor]]:
    size = batch_size(setup.batch)
    yield from ((path, tensor) for path, tensor in tensors_in(setup.batch) if tensor.shape[:1] == (size,))
