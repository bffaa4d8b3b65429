"""The inputs of single samples, and their contents without padding.

A collate function pads each sequence to the longest of its batch, so the same sample has other tensors in another
batch.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

_LEAST_BYTES = 16
"""A sample with less content than four floats (a class, an instruction) repeats by nature."""
_MOST_BYTES = 2**16
"""A larger tensor of a sample is hashed at once, with its padding."""

Sample = Mapping[str, Tensor | bytes]
"""A sample's inputs by their path in the batch: tensors (T, ...) that may be padded along T, hashes of the others."""


def sample_of(inputs: Mapping[str, Tensor]) -> Sample | None:
    """One sample of a batch's inputs, each without the batch dimension; None if all of them are blank."""
    if all(bool((one == one.reshape(-1)[:1]).all()) for one in inputs.values() if one.numel()):
        return None
    return {path: one if _may_be_padded(one) else _digest([_content(one)]) for path, one in inputs.items()}


def contents(*loaders: Sequence[Sample]) -> list[list[bytes]]:
    """For each loader, a hash of every sample that has enough content. Padding does not count."""
    paddings = _paddings([sample for samples in loaders for sample in samples])
    return [[hashed for one in samples if (hashed := _hash(one, paddings)) is not None] for samples in loaders]


def _may_be_padded(one: Tensor) -> bool:
    return one.ndim >= 1 and one.numel() * one.element_size() <= _MOST_BYTES


def _paddings(samples: Iterable[Sample]) -> dict[str, float]:
    """The value that pads each path whose length varies: 0 in a mask, otherwise what fills most ends of two steps."""
    lengths: defaultdict[str, set[int]] = defaultdict(set)
    fills: defaultdict[str, Counter[float]] = defaultdict(Counter)
    not_masks: set[str] = set()
    for sample in samples:
        for path, one in sample.items():
            if not isinstance(one, Tensor):
                continue
            lengths[path].add(len(one))
            if not bool(((one == 0) | (one == 1)).all()):
                not_masks.add(path)
            for end in (one[:2], one[-2:]):
                if len(one) > 1 and bool((end == end.reshape(-1)[0]).all()):
                    fills[path][float(end.reshape(-1)[0])] += 1
    varying = [path for path, seen in lengths.items() if len(seen) > 1]
    tokens = {path: fills[path].most_common(1)[0][0] for path in varying if path in not_masks and fills[path]}
    return {path: 0.0 for path in varying if path not in not_masks} | tokens


def _hash(sample: Sample, paddings: Mapping[str, float]) -> bytes | None:
    parts, size = [], 0
    for path, one in sorted(sample.items()):
        if isinstance(one, bytes):
            parts.append(one)
            size += _LEAST_BYTES
            continue
        content = _content(_without(one, paddings[path]) if path in paddings else one)
        parts.append(content)
        size += len(content)
    return _digest(parts) if size >= _LEAST_BYTES else None


def _without(one: Tensor, padding: float) -> Tensor:
    """(T, ...) without the first and the last steps that hold nothing but `padding`."""
    kept = (one != padding).reshape(len(one), -1).any(dim=1).nonzero().flatten()
    return one[int(kept[0]) : int(kept[-1]) + 1] if len(kept) else one[:0]


def _content(one: Tensor) -> bytes:
    return one.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if one.numel() else b""


def _digest(parts: Sequence[bytes]) -> bytes:
    joined = hashlib.blake2b(digest_size=16)
    for part in parts:
        joined.update(len(part).to_bytes(8, "little") + part)
    return joined.digest()
