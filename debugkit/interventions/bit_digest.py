"""A short digest of the bits of every tensor in a value; two digests are equal only if all bits are equal."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from debugkit.structure import tensors_in


def digest(value: Any) -> bytes:
    """Digest of all tensors in `value` with their shapes and dtypes, or of a single number or string."""
    summary = hashlib.blake2b(digest_size=12)
    if isinstance(value, bool | int | float | str):
        summary.update(repr(value).encode())
    for path, tensor in tensors_in(value):
        summary.update(f"{path}{tuple(tensor.shape)}{tensor.dtype}".encode())
        if not tensor.is_meta and tensor.numel():
            summary.update(_bits(tensor))
    return summary.digest()


def _bits(tensor: torch.Tensor) -> bytes:
    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    return dense.reshape(-1).contiguous().resolve_conj().cpu().view(torch.uint8).numpy().tobytes()
