"""Callbacks around the steps of every optimizer, which may be added and removed at any time, also during a step.

PyTorch iterates over its own hooks while they run: removing one in a hook raises RuntimeError in the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

Before = Callable[[Optimizer, tuple[Any, ...], dict[str, Any]], Any]
"""`before(optimizer, args, kwargs)`, with the optimizer as the first of `args`. Returns None or other arguments."""
After = Callable[[Optimizer, tuple[Any, ...], dict[str, Any]], None]


class _Callbacks:
    """Those of all objects, behind one pair of PyTorch's hooks, which is attached while there are any."""

    def __init__(self) -> None:
        self.before: tuple[Before, ...] = ()  # replaced at each change, so a step that runs keeps those it began with
        self.after: tuple[After, ...] = ()
        self._handles: list[RemovableHandle] = []

    def change(self, before: tuple[Before, ...], after: tuple[After, ...]) -> None:
        self.before, self.after = before, after
        if not (before or after):
            for handle in self._handles:
                handle.remove()
            self._handles.clear()
        elif not self._handles:
            self._handles.append(register_optimizer_step_pre_hook(self._begins))
            self._handles.append(register_optimizer_step_post_hook(self._ended))

    def _begins(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        changed = None
        for before in self.before:
            result = before(optimizer, args, kwargs)
            if result is not None:
                changed = args, kwargs = result
        return changed

    def _ended(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for after in self.after:
            after(optimizer, args, kwargs)


_CALLBACKS = _Callbacks()


class OptimizerSteps:
    """Calls `before` and `after` around the `step()` of each optimizer of the process between `attach` and `remove`."""

    def __init__(self, *, before: Before | None = None, after: After | None = None) -> None:
        self._before = () if before is None else (before,)
        self._after = () if after is None else (after,)
        self._attached = False

    def attach(self) -> None:
        """Attach the callbacks, unless they are attached."""
        if not self._attached:
            self._attached = True
            _CALLBACKS.change(_CALLBACKS.before + self._before, _CALLBACKS.after + self._after)

    def remove(self) -> None:
        """Remove the callbacks."""
        if self._attached:
            self._attached = False
            _CALLBACKS.change(_without(_CALLBACKS.before, self._before), _without(_CALLBACKS.after, self._after))


def _without(callbacks: tuple[Any, ...], own: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one for one in callbacks if not any(one is other for other in own))
