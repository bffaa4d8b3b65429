"""Values on the wire: plain data as a tagged JSON tree, tensors as safetensors.

A tree node is a plain scalar, or an object with exactly one tag: `list`, `tuple`, `dict` (pairs), `number` (a
non-finite float, as a string), `tensor` (its facts), `object` (the name of a type that is not data). So a submission's
own dict can never be mistaken for a tag. The properties of a tensor (strides, aliasing, requires_grad) are sent as
facts beside its values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import safetensors.torch
import torch

DEEPEST = 32
MOST_NODES = 500_000
LONGEST_TEXT = 200_000
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class ValueFormatError(Exception):
    """A value cannot be sent, or what arrived is not a value."""


@dataclass(frozen=True)
class TensorFacts:
    """A tensor's properties in the child. The copy that was sent is contiguous, on the CPU and without a graph."""

    stride: tuple[int, ...]
    requires_grad: bool
    is_leaf: bool
    storage: int
    """Equal for tensors of one reply that share memory."""
    device: str
    type_name: str
    """`Tensor`, `Parameter`, or the subclass."""
    grad_fn: str | None


@dataclass(frozen=True)
class Opaque:
    """A placeholder for an object that is not data. It equals nothing that a check expects."""

    type_name: str

    def __str__(self) -> str:
        return f"an object of type {self.type_name}"


def facts(tensor: torch.Tensor) -> TensorFacts:
    """The facts of a tensor that came from the sandbox. Raises ValueError for any other tensor."""
    found = getattr(tensor, "_observed_facts", None)
    if not isinstance(found, TensorFacts):
        raise ValueError("This tensor did not come from the sandbox, so it has no facts.")
    return found


def encode(value: Any) -> tuple[Any, bytes]:
    """A value as (tree, safetensors bytes). Raises ValueFormatError if it is too large or a tensor cannot be sent."""
    writer = _Writer()
    tree = writer.node(value, 0)
    return tree, safetensors.torch.save(writer.tensors) if writer.tensors else b""


def decode(tree: Any, payload: bytes) -> Any:
    """The value of a tree and its tensors. Raises ValueFormatError for anything that `encode` would not have made."""
    try:
        tensors = safetensors.torch.load(payload) if payload else {}
        reader = _Reader(tensors)
        value = reader.node(tree, 0)
    except ValueFormatError:
        raise
    except Exception as error:  # a forged payload may make the parser raise anything
        raise ValueFormatError(f"not a value: {type(error).__name__}") from None
    if reader.used != set(tensors):
        raise ValueFormatError("tensors arrived that the value does not mention")
    return value


class _Writer:
    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._storages: dict[int, int] = {}
        self._nodes = 0

    def node(self, value: Any, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > MOST_NODES or depth > DEEPEST:
            raise ValueFormatError("the value has too many parts, or is nested too deeply, to be a measurement")
        if value is None or type(value) is bool:
            return value
        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensor(value)}
        if isinstance(value, str):
            return _text(str(value))
        if isinstance(value, (torch.dtype, torch.device)):
            return str(value)
        if isinstance(value, int):
            return _integer(int(value))
        if isinstance(value, float):
            return _float(float(value))
        if isinstance(value, Mapping):
            return {"dict": [[_key(key), self.node(item, depth + 1)] for key, item in value.items()]}
        if isinstance(value, (list, tuple)):
            tag = "tuple" if isinstance(value, tuple) else "list"
            return {tag: [self.node(item, depth + 1) for item in value]}
        return self._other(value, depth)

    def _other(self, value: Any, depth: int) -> Any:
        import numpy as np

        if isinstance(value, np.generic):
            return self.node(value.item(), depth + 1)
        if isinstance(value, np.ndarray):
            return self.node(torch.from_numpy(np.ascontiguousarray(value)), depth + 1)
        return {"object": f"{type(value).__module__}.{type(value).__qualname__}"[:200]}

    def _tensor(self, value: torch.Tensor) -> dict[str, Any]:
        try:
            with torch._C.DisableTorchFunctionSubclass():
                copy = value.detach().cpu().contiguous().clone()
                if type(copy) is not torch.Tensor:
                    copy = copy.as_subclass(torch.Tensor)
                found = self._facts(value)
        except (RuntimeError, NotImplementedError, TypeError) as error:
            raise ValueFormatError(f"a {value.layout} tensor on {value.device} cannot be sent: {error}") from None
        name = str(len(self.tensors))
        if copy.dtype == torch.complex128:  # safetensors knows complex64 only
            self.tensors[name] = torch.view_as_real(copy).contiguous()
            return {"name": name, "complex": True, **asdict(found)}
        self.tensors[name] = copy
        return {"name": name, "complex": False, **asdict(found)}

    def _facts(self, value: torch.Tensor) -> TensorFacts:
        address = value.untyped_storage().data_ptr()
        return TensorFacts(
            stride=tuple(value.stride()),
            requires_grad=value.requires_grad,
            is_leaf=value.is_leaf,
            storage=self._storages.setdefault(address, len(self._storages)),
            device=str(value.device),
            type_name=type(value).__name__,
            grad_fn=type(value.grad_fn).__name__ if value.grad_fn is not None else None,
        )


class _Reader:
    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self.used: set[str] = set()
        self._nodes = 0

    def node(self, tree: Any, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > 2 * MOST_NODES or depth > 2 * DEEPEST:
            raise ValueFormatError("too many parts, or nested too deeply")
        if tree is None or isinstance(tree, (bool, int, float)):
            return tree
        if isinstance(tree, str):
            return _text(tree)
        if not isinstance(tree, dict) or len(tree) != 1:
            raise ValueFormatError("a node is a scalar or has exactly one tag")
        [(tag, content)] = tree.items()
        if tag in ("list", "tuple") and isinstance(content, list):
            items = [self.node(item, depth + 1) for item in content]
            return tuple(items) if tag == "tuple" else items
        if tag == "dict" and isinstance(content, list):
            return {_key(key): self.node(item, depth + 1) for key, item in content}
        if tag == "number" and content in _NON_FINITE:
            return _NON_FINITE[content]
        if tag == "tensor" and isinstance(content, dict):
            return self._tensor(content)
        if tag == "object" and isinstance(content, str):
            return Opaque(_text(content)[:200])
        raise ValueFormatError("an unknown tag")

    def _tensor(self, content: dict[str, Any]) -> torch.Tensor:
        content = dict(content)
        name, is_complex = content.pop("name"), content.pop("complex")
        found = TensorFacts(**{**content, "stride": tuple(content["stride"])})
        types = {"requires_grad": bool, "is_leaf": bool, "storage": int, "device": str, "type_name": str}
        if not all(type(getattr(found, key)) is kind for key, kind in types.items()):
            raise ValueFormatError("a tensor's facts are of the wrong type")
        if not all(type(step) is int for step in found.stride) or not isinstance(found.grad_fn, (str, type(None))):
            raise ValueFormatError("a tensor's facts are of the wrong type")
        tensor = self._tensors[name]
        if name in self.used:
            raise ValueFormatError("one tensor was sent for two")
        self.used.add(name)
        if is_complex is True:
            tensor = torch.view_as_complex(tensor)
        elif is_complex is not False:
            raise ValueFormatError("a tensor's facts are of the wrong type")
        tensor._observed_facts = found  # type: ignore[attr-defined]
        return tensor


def _text(value: str) -> str:
    if len(value) > LONGEST_TEXT:
        raise ValueFormatError(f"a text of {len(value)} characters is too long to be a measurement")
    return value.encode("utf-8", "replace").decode("utf-8")  # lone surrogates cannot be encoded


def _integer(value: int) -> int:
    if value.bit_length() > 128:
        raise ValueFormatError("an integer of more than 128 bits is not a measurement")
    return value


def _float(value: float) -> Any:
    return value if math.isfinite(value) else {"number": str(value)}


def _key(key: Any) -> str | int:
    if isinstance(key, str):
        return _text(str(key))
    if isinstance(key, int) and not isinstance(key, bool):
        return _integer(int(key))
    raise ValueFormatError(f"a dict key of type {type(key).__name__} cannot be sent: use text or an integer")
