"""Traverse nested batches of tensors, tuples, named tuples, dicts, dataclasses and `BatchEncoding`."""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch


def map_tensors(value: Any, change: Callable[[str, torch.Tensor], torch.Tensor], path: str = "") -> Any:
    """A copy of `value` with every tensor replaced by `change(path, tensor)`; other leaves are shared.

    Containers keep their type. A path joins keys and indices with dots: `image.0`, `tokens.input_ids`.
    """
    if isinstance(value, torch.Tensor):
        return change(path, value)
    if isinstance(value, UserDict):  # transformers' BatchEncoding and BatchFeature
        wrapped = copy.copy(value)
        wrapped.data = {key: map_tensors(item, change, _join(path, key)) for key, item in value.data.items()}
        return wrapped
    if isinstance(value, Mapping):
        return _rebuild_mapping(
            value, {key: map_tensors(item, change, _join(path, key)) for key, item in value.items()}
        )
    if isinstance(value, tuple | list):
        items = [map_tensors(item, change, _join(path, index)) for index, item in enumerate(value)]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return items if type(value) is list else type(value)(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed: Any = copy.copy(value)
        for field in dataclasses.fields(value):
            item = map_tensors(getattr(value, field.name), change, _join(path, field.name))
            object.__setattr__(changed, field.name, item)  # also where the dataclass is frozen
        return changed
    return value


def tensors_in(value: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in `value` with its path, in order."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, UserDict | Mapping):
        for key, item in value.items():
            yield from tensors_in(item, _join(path, key))
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from tensors_in(item, _join(path, index))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name), _join(path, field.name))


def clone_tensors(value: Any) -> Any:
    """A copy of a batch that can be changed in place without changing the original."""
    return map_tensors(value, lambda _, tensor: tensor.detach().clone().requires_grad_(tensor.requires_grad))


def batch_size(value: Any) -> int | None:
    """The most common size of the first dimension in a batch.

    None if no tensor has a dimension, and for a list of samples of several lengths: none of these is their number.
    """
    if isinstance(value, list) and all(isinstance(item, torch.Tensor) for item in value):
        lengths = [tuple(item.shape[:1]) for item in value]
        if 2 * max(map(lengths.count, lengths), default=1) <= len(lengths):
            return None
    sizes = [tensor.shape[0] for _, tensor in tensors_in(value) if tensor.ndim > 0]
    return max(sizes, key=lambda size: (sizes.count(size), size)) if sizes else None


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _rebuild_mapping(value: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if type(value) is dict:
        return items
    try:
        changed = copy.copy(value)  # keeps default factories and extra attributes, as of TensorDict
        for key, item in items.items():
            changed[key] = item  # type: ignore[index]
        return changed
    except TypeError:
        return items
