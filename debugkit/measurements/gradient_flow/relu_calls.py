"""Records every ReLU, called as a module or as a function, and which of its units are never above zero."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from debugkit._torch_private import leave
from debugkit.recorders.module_calls import ModuleCalls

_RELUS: frozenset[Any] = frozenset(
    (torch.relu, torch.relu_, Tensor.relu, Tensor.relu_, nn.functional.relu, nn.functional.relu6)
)


@dataclass
class ReluCall:
    """One ReLU of the forward pass. `alive` holds, for each unit, whether it was ever above zero."""

    module: str
    alive: Tensor
    samples: int


class ReluCalls(TorchFunctionMode):
    """Records the calls of the passes that run inside the block. Calls within a module are numbered."""

    def __init__(self, modules: Mapping[nn.Module, str]) -> None:
        super().__init__()
        self.calls: dict[tuple[str, int], ReluCall] = {}
        self._modules = modules
        self._running: list[nn.Module] = []
        self._number: dict[str, int] = {}
        named = ((path, module) for module, path in modules.items())
        self._calls = ModuleCalls(named, before=self._entered, after=self._left, also_raised=True)

    def __enter__(self) -> Self:
        self._calls.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(self)
        self._calls.remove()
        self._running.clear()

    def new_pass(self) -> None:
        """Number the calls of the next forward pass from zero again."""
        self._number.clear()
        self._running.clear()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _RELUS and isinstance(result, Tensor) and self._running:
            self._record(result)
        return result

    def _record(self, result: Tensor) -> None:
        owner = self._running[-1]
        module = self._modules[owner]
        number = self._number.get(module, 0)
        self._number[module] = number + 1
        units = _units_first(result.detach())
        if units is None or (units.shape[0] == units.shape[1] and any(True for _ in owner.children())):
            return  # a square matrix outside an activation module: similarities in a contrastive loss
        alive = (units > 0).any(dim=1)
        known = self.calls.get((module, number))
        if known is None or known.alive.shape != alive.shape:
            self.calls[module, number] = ReluCall(module, alive, units.shape[1])
        else:
            known.alive |= alive
            known.samples += units.shape[1]

    def _entered(self, _path: str, module: nn.Module, *_: Any) -> None:
        self._running.append(module)

    def _left(self, _path: str, module: nn.Module, *_: Any) -> None:
        if self._running and self._running[-1] is module:
            self._running.pop()


def _units_first(activation: Tensor) -> Tensor | None:
    """(units, samples): the channels of an image, else the last dimension. None if it is not a layer of units."""
    if not activation.requires_grad and activation.grad_fn is None and activation.ndim < 2:
        return None
    if activation.ndim < 2 or activation.numel() == 0:
        return None
    return activation.movedim(1 if activation.ndim >= 4 else -1, 0).flatten(1)
