"""Searches the modules' attributes, before and after a step, for tensors that `.to()` does not move."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Self

from torch import Tensor, nn

from debugkit._torch_private import REGISTERED, buffers_of, parameters_of
from debugkit.interventions.own_moves import moved_by_apply
from debugkit.module_paths import plain_path
from debugkit.probe import Probe
from debugkit.rules.dk005_stray_tensor_attribute import StrayAttribute, StrayAttributes
from debugkit.setup import TrainingSetup

_DEPTH = 3
_Found = tuple[str, str, Tensor]  # module path, attribute path inside it, tensor


class StrayAttributesProbe(Probe[StrayAttributes]):
    """Keeps addresses and shapes. Scalars are left out: operations accept a CPU scalar on any device."""

    partial = True

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._before: dict[str, tuple[int, StrayAttribute]] = {}
        self._held: tuple[StrayAttribute, ...] = ()

    def __enter__(self) -> Self:
        moved = moved_by_apply(self.setup.model)
        self._before = {
            entry.path: (id(tensor), entry)
            for entry, tensor in _strays(self.setup.model)
            if tensor.ndim > 0 and id(tensor) not in moved
        }
        return self

    def end_step(self, _step: int, /) -> None:
        now = {entry.path: id(tensor) for entry, tensor in _strays(self.setup.model)}
        # A tensor replaced or removed during the step is created in each step, on the device of the inputs.
        self._held = tuple(entry for path, (known, entry) in self._before.items() if now.get(path) == known)

    @property
    def observation(self) -> StrayAttributes:
        return StrayAttributes(self._held)


def _strays(model: nn.Module) -> Iterator[tuple[StrayAttribute, Tensor]]:
    moved = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    seen: set[int] = set()
    for module_path, name, tensor in _attributes(model):
        if id(tensor) in moved or id(tensor) in seen or tensor.grad_fn is not None:
            continue  # a tensor with a graph was computed from parameters: weight_norm, spectral_norm, pruning
        seen.add(id(tensor))
        path = plain_path(f"{module_path}.{name}".lstrip("."))
        dtype = str(tensor.dtype).removeprefix("torch.")
        yield StrayAttribute(plain_path(module_path), path, tuple(tensor.shape), dtype), tensor


def _attributes(model: nn.Module) -> Iterator[_Found]:
    for path, module in model.named_modules():
        recomputed = {
            name.removesuffix(suffix)
            for name in (*parameters_of(module), *buffers_of(module))
            for suffix in ("_orig", "_g", "_v")
        }
        for name, value in list(vars(module).items()):
            if name not in REGISTERED and name not in recomputed:
                for inner, tensor in _tensors(value, name, _DEPTH):
                    yield path, inner, tensor


def _tensors(value: Any, name: str, depth: int) -> Iterator[tuple[str, Tensor]]:
    """The tensors in an attribute: the attribute itself, or inside containers and plain objects (a normaliser)."""
    if isinstance(value, Tensor):
        yield name, value
    elif depth == 0 or isinstance(value, nn.Module | type | str | bytes):
        return
    elif isinstance(value, Mapping):
        for key, item in list(value.items()):
            yield from _tensors(item, f"{name}.{key}", depth - 1)
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from _tensors(item, f"{name}.{index}", depth - 1)
    elif type(value).__module__.partition(".")[0] not in ("torch", "builtins", "types", "functools"):
        names = [f.name for f in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
        for attribute, item in list(vars(value).items()) if hasattr(value, "__dict__") else _slots(value, names):
            if isinstance(item, Tensor | Mapping | tuple | list):
                yield from _tensors(item, f"{name}.{attribute}", depth - 1)


def _slots(value: Any, names: list[str]) -> Iterator[tuple[str, Any]]:
    yield from ((name, getattr(value, name, None)) for name in names)
