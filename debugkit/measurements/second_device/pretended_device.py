"""A simulated device: its tensors have shapes and the device `gpu`, but no values.

It is a backend in Python, under FakeTensorMode, that is registered as PrivateUse1, PyTorch's slot for other vendors'
hardware. The registration cannot be undone, so it is done in a child process only.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from debugkit._torch_private import (
    REGISTERED,
    buffers_of,
    fake_tensor_mode,
    fake_tensor_type,
    parameters_of,
    register_python_device,
)
from debugkit.interventions.own_moves import moved_by_apply
from debugkit.measurements.second_device.stray_tensors import named_device
from debugkit.structure import map_tensors, tensors_in

NAME = "gpu"
# A fake tensor has no values, so these operations return the values recorded on the CPU.
_READ_VALUES = frozenset(
    {"item", "tolist", "numpy", "__array__", "__bool__", "__float__", "__int__", "__index__", "__complex__"}
    | {"equal", "allclose", "is_nonzero", "__contains__"}
)
# Their backward needs to know how many elements a mask selects.
_ASSIGNMENTS = frozenset({"__setitem__", "index_put", "index_put_"})
_TAKES_A_MASK = frozenset({"scaled_dot_product_attention", "multi_head_attention_forward"})
_INDEXED = _ASSIGNMENTS | {"__getitem__"}
_VALUES_SHAPE_THE_OUTPUT = frozenset({"nonzero", "masked_select", "unique", "unique_consecutive", "bincount"})


class ValueRecorder(TorchFunctionMode):
    """Records the values that a run on the CPU reads from tensors, so that a run without values takes the same path."""

    def __init__(self) -> None:
        super().__init__()
        self.read: deque[tuple[str, Any]] = deque()

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        kwargs = kwargs or {}
        masks = _masks_of(name, args, kwargs)
        if masks:
            self.read.append((name, [int(mask.count_nonzero()) for mask in masks]))
        output = func(*args, **kwargs)
        if name in _READ_VALUES:
            self.read.append((name, output))
        elif _has_dynamic_shape(name, args):
            outputs = [t for _, t in tensors_in(output)]
            kept = [(tuple(t.shape), t.dtype) for t in outputs]
            self.read.append((name, (kept, isinstance(output, tuple | list))))
        return output


class PretendedDevice:
    """Sets up the device and moves a model and a batch to it. Only once per process, and only in a child process."""

    def __init__(self, read: deque[tuple[str, Any]]) -> None:
        self._lost: list[BaseException] = []
        _register_backend(self._lost)
        fake_tensor_type().tolist = Tensor.tolist  # type: ignore[method-assign] # its own reads element by element
        self.device = torch.device(NAME, 0)
        self.mode = fake_tensor_mode(allow_non_fake_inputs=True)
        self._read = read
        self._moves_itself: frozenset[int] = frozenset()

    def move(self, model: nn.Module, origin: Callable[[Tensor, str], None]) -> None:
        """Move parameters and buffers. Other tensors stay, as with `.to()`, and are passed to `origin`."""
        moved: dict[int, Any] = {}
        self._moves_itself = moved_by_apply(model)
        for path, module in model.named_modules():
            for name, parameter in list(parameters_of(module).items()):
                if parameter is not None:
                    parameters_of(module)[name] = moved.setdefault(id(parameter), self._parameter(parameter))
            for name, buffer in list(buffers_of(module).items()):
                if buffer is not None:
                    buffers_of(module)[name] = moved.setdefault(id(buffer), self._tensor(buffer.detach(), self.device))
            for name, value in list(module.__dict__.items()):
                if name not in REGISTERED:
                    module.__dict__[name] = self._left_behind(value, f"{path}.{name}".lstrip("."), moved, origin)

    def batch(self, batch: Any) -> Any:
        """The batch on the device."""
        return map_tensors(batch, lambda _, t: self._tensor(t.detach(), self.device).requires_grad_(t.requires_grad))

    def call(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run an operation, or return the recorded result if it reads values."""
        name = getattr(func, "__name__", "")
        if name in _READ_VALUES:
            return self._next(name)
        if name in _INDEXED and _is_indexed_from_elsewhere(args, kwargs):
            raise RuntimeError(f"The indices of a CPU tensor are not on the same device, but on {NAME}:0.")
        if name in _TAKES_A_MASK and _has_a_mask_from_elsewhere(args, kwargs):
            raise RuntimeError(f"Expected all tensors to be on the same device, but found cpu and {NAME}:0.")
        if _has_dynamic_shape(name, args):
            shapes, several = self._next(name)
            source = next(t for _, t in tensors_in(args))
            outputs = [_shaped(source, shape, dtype) for shape, dtype in shapes]
            return tuple(outputs) if several else outputs[0]
        if _masks_of(name, args, kwargs):
            return self._assign(func, args, kwargs, self._next(name))
        named = named_device(name, args, kwargs)
        if named is not None and named.type == "cpu" and not _goes_where_another_is(args):
            args, kwargs = _replaced(args, kwargs, self.device)
        try:
            return func(*args, **kwargs)
        except SystemError:
            if not self._lost:
                raise
            error = self._lost[0]
            self._lost.clear()
            raise error from None

    def _assign(self, func: Callable[..., Any], args: Any, kwargs: Any, counts: Sequence[int]) -> Any:
        """Run `x[mask] = value`, where the mask selects a recorded number of elements."""
        try:
            args, kwargs = _with_integer_indices(args, kwargs, counts)
            return func(*args, **kwargs)
        except RuntimeError:
            self._read.appendleft((func.__name__, counts))  # it may run again with other tensors
            raise

    def _next(self, name: str) -> Any:
        if not self._read or self._read[0][0] != name:
            raise ValueError(f"the code took another path than on the CPU (it reads a value with {name})")
        return self._read.popleft()[1]

    def _parameter(self, parameter: nn.Parameter) -> nn.Parameter:
        fake = self._tensor(parameter.detach(), self.device)
        return nn.Parameter(fake, requires_grad=parameter.requires_grad)

    def _tensor(self, tensor: Tensor, device: torch.device | str) -> Tensor:
        with self.mode:
            return self.mode.from_tensor(tensor).to(device)

    def _left_behind(
        self, value: Any, path: str, moved: dict[int, Tensor], origin: Callable[[Tensor, str], None], depth: int = 3
    ) -> Any:
        """`value` with every tensor in it replaced by a fake CPU tensor. Aliases of parameters and buffers move too."""
        if isinstance(value, Tensor):
            if id(value) in moved:
                return moved[id(value)]
            if id(value) in self._moves_itself:
                return moved.setdefault(id(value), self._tensor(value.detach(), self.device))
            fake = self._tensor(value.detach(), "cpu")
            origin(fake, path)
            return fake
        if depth == 0 or isinstance(value, nn.Module | type | str | bytes):
            return value
        if isinstance(value, dict | list):
            for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
                value[key] = self._left_behind(item, f"{path}.{key}", moved, origin, depth - 1)
        elif type(value) is tuple:
            return tuple(self._left_behind(v, f"{path}.{i}", moved, origin, depth - 1) for i, v in enumerate(value))
        else:
            for name, item in _own_attributes(value):
                if isinstance(item, Tensor | dict | list | tuple):
                    object.__setattr__(value, name, self._left_behind(item, f"{path}.{name}", moved, origin, depth - 1))
        return value


def _goes_where_another_is(args: Any) -> bool:
    """Whether it is `.to(other)`, which names no device of its own."""
    return any(isinstance(value, Tensor) for value in args[1:2])


def _replaced(args: Any, kwargs: Any, device: torch.device) -> tuple[Any, Any]:
    if "device" in kwargs:
        return args, {**kwargs, "device": device}
    return (args[0], device, *args[2:]), kwargs


def _own_attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of a plain object, such as a normaliser that holds its statistics."""
    if type(value).__module__.partition(".")[0] in ("torch", "builtins", "types", "functools"):
        return
    if dataclasses.is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    else:
        yield from list(getattr(value, "__dict__", {}).items())


def _has_dynamic_shape(name: str, args: Any) -> bool:
    if name == "__getitem__":
        return any(t.dtype in (torch.bool, torch.uint8) for _, t in tensors_in(args[1:]))
    if name == "where":
        return len(args) == 1
    if name == "repeat_interleave":
        return any(isinstance(argument, Tensor) for argument in args[1:])
    return name in _VALUES_SHAPE_THE_OUTPUT


def _masks_of(name: str, args: Any, kwargs: Any) -> list[Tensor]:
    """The masks through which an operation assigns: `x[mask] = value`."""
    return [index for index in _indices_of(args, kwargs) if _is_mask(index)] if name in _ASSIGNMENTS else []


def _indices_of(args: Any, kwargs: Any) -> Sequence[Any]:
    indices = kwargs["indices"] if "indices" in kwargs else args[1]
    return indices if isinstance(indices, tuple | list) else (indices,)


def _is_indexed_from_elsewhere(args: Any, kwargs: Any) -> bool:
    """Whether a CPU tensor is indexed by a tensor of the device, which a fake tensor allows and a GPU does not."""
    indices = [t for _, t in tensors_in(tuple(_indices_of(args, kwargs)))]
    return any(t.ndim and t.device.type == NAME for t in indices) and args[0].device.type == "cpu"


def _has_a_mask_from_elsewhere(args: Any, kwargs: Any) -> bool:
    """Whether one of several tensors of an attention is not on the device, which a fake tensor allows for the mask."""
    devices = {t.device.type for _, t in tensors_in((args, kwargs)) if t.ndim}
    return len(devices) > 1 and NAME in devices


def _is_mask(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and value.dtype in (torch.bool, torch.uint8)


def _with_integer_indices(args: Any, kwargs: Any, counts: Iterable[int]) -> tuple[Any, Any]:
    """The arguments of an assignment, with integer indices instead of each mask. `counts`: how many it selects."""
    left = iter(counts)
    indices: list[Any] = []
    for index in _indices_of(args, kwargs):
        if _is_mask(index):
            indices += [torch.empty(next(left), dtype=torch.int64, device=index.device)] * index.ndim
        else:
            indices.append(index)
    if "indices" in kwargs:
        return args, {**kwargs, "indices": tuple(indices)}
    return (args[0], tuple(indices), *args[2:]), kwargs


def _shaped(source: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    made = torch.empty(shape, dtype=dtype, device=source.device)
    # Adding the sum keeps the result connected to the graph of `source`.
    return made + source.sum() * 0 if source.requires_grad and dtype.is_floating_point else made


def _register_backend(lost: list[BaseException]) -> None:
    register_python_device(NAME, lost)
    # Autocast would need its own kernels. It can be skipped, because the device check does not depend on the dtype.
    global _library
    _library = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
    _library.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")  # type: ignore[no-untyped-call]


_library: torch.library.Library | None = None
