"""Batches, states and random states as JSON with one file of tensors, which can be read without unpickling."""

from __future__ import annotations

import importlib.util
import re
from collections import UserDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Tensors = dict[str, Tensor]


class NotPortable(ValueError):  # noqa: N818 - it reports a limit, not an error
    """A value that cannot be encoded; the message is its type."""


def encode(value: Any, tensors: Tensors) -> Any:
    """JSON for `value`; its tensors go to `tensors`, copied to the host. Raises NotPortable."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, Tensor):
        key = f"t{len(tensors)}"
        tensors[key] = value.detach().cpu().contiguous().clone()
        return {"tensor": key, "requires_grad": value.requires_grad, "device": str(value.device)}
    if isinstance(value, torch.dtype | torch.device):
        return {"dtype" if isinstance(value, torch.dtype) else "device_of": str(value).removeprefix("torch.")}
    if isinstance(value, UserDict | Mapping):
        return {"dict": [[encode(key, tensors), encode(item, tensors)] for key, item in value.items()]}
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [encode(item, tensors) for item in value]}
    if type(value).__module__ == "numpy":
        return {"list": [encode(item, tensors) for item in value.tolist()]}
    raise NotPortable(f"{type(value).__module__}.{type(value).__qualname__}")


def decode(value: Any, tensors: Tensors) -> Any:
    """The value that `encode` received, with plain dicts for all mappings."""
    if not isinstance(value, dict):
        return value
    kind, content = next(iter(value.items()))
    if kind == "float":
        return float.fromhex(content)
    if kind == "tensor":
        tensor = tensors[content]
        return tensor.requires_grad_() if value["requires_grad"] else tensor
    if kind == "dtype":
        return getattr(torch, content)
    if kind == "device_of":
        return torch.device(content)
    if kind == "dict":
        return {decode(key, tensors): decode(item, tensors) for key, item in content}
    items = [decode(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items


def save_tensors(tensors: Tensors, folder: Path) -> str:
    """Write `tensors`, as safetensors if that is installed, and return the name of the file."""
    if importlib.util.find_spec("safetensors") is not None:
        from safetensors.torch import save_file

        save_file(tensors, folder / "tensors.safetensors")
        return "tensors.safetensors"
    torch.save(tensors, folder / "tensors.pt")
    return "tensors.pt"


def load_tensors(file: Path) -> Tensors:
    """Read the tensors that `save_tensors` wrote; no code in the file is run."""
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(file))
    return dict(torch.load(file, weights_only=True))


def importable(cls: type) -> str | None:
    """`module:qualname` of a class that another process can import; None for a local one or one of `__main__`."""
    if cls.__module__ == "__main__" or not re.fullmatch(r"[\w.]+", cls.__qualname__):
        return None
    return f"{cls.__module__}:{cls.__qualname__}"
