"""A table whose keys are tensors, which it does not keep alive."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

from torch import Tensor

Value = TypeVar("Value")


class ByTensor(Generic[Value]):
    """A value for each tensor that is alive. Faster than torch's `WeakTensorKeyDictionary`."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[weakref.ref[Tensor], Value]] = {}

    def __contains__(self, tensor: Tensor) -> bool:
        return self.get(tensor) is not None

    def __getitem__(self, tensor: Tensor) -> Value:
        return self._values[id(tensor)][1]

    def __setitem__(self, tensor: Tensor, value: Value) -> None:
        values, key = self._values, id(tensor)
        values[key] = weakref.ref(tensor, lambda _: values.pop(key, None)), value

    def get(self, tensor: Tensor) -> Value | None:
        """The tensor's value; None if it has none."""
        held = self._values.get(id(tensor))
        return held[1] if held is not None and held[0]() is tensor else None

    def discard(self, tensor: Tensor) -> None:
        """Forget the tensor, if it is known."""
        self._values.pop(id(tensor), None)
