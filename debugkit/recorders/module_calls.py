"""Hooks on modules: callbacks around each forward, which are all removed afterwards."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.hooks import RemovableHandle

from debugkit._torch_private import hooks_on
from debugkit.recorders.guard import Guard, current_guard, guarded

Before = Callable[[str, nn.Module, tuple[Any, ...], dict[str, Any]], None]
"""`before(path, module, args, kwargs)`."""
After = Callable[[str, nn.Module, tuple[Any, ...], dict[str, Any], Any], Any]
"""`after(path, module, args, kwargs, output)`; a result other than None replaces the output."""


class ModuleCalls:
    """Calls `before` and `after` around the forward of each of `modules`, which are pairs of path and module.

    With `also_raised`, `after` is also called for a forward that raised, with `output=None`. With `before_others`,
    `before` runs before the hooks that a module has already. Scripted modules are left out, because PyTorch supports no
    hooks on them. `attach` and `remove` work without a `with` block.

    >>> seen = []
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> with ModuleCalls(model.named_modules(), after=lambda path, *_: seen.append(path)):
    ...     _ = model(torch.ones(1, 2))
    >>> seen
    ['0', '1', '']
    """

    def __init__(
        self,
        modules: Iterable[tuple[str, nn.Module]] = (),
        *,
        before: Before | None = None,
        after: After | None = None,
        also_raised: bool = False,
        before_others: bool = False,
    ) -> None:
        self._modules = tuple(modules)
        self._before, self._after = before, after
        self._also_raised, self._before_others = also_raised, before_others
        self._handles: list[RemovableHandle] = []
        self._guard: Guard | None = None
        self._callbacks: tuple[Before | None, After | None] = before, after
        self._hooks: dict[tuple[str, int], _Hooks] = {}  # by path and id() of the module

    def __enter__(self) -> Self:
        for path, module in self._modules:
            self.attach(path, module)
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __bool__(self) -> bool:
        """Whether any hook is attached."""
        return bool(self._handles)

    def attach(self, path: str, module: nn.Module) -> bool:
        """Hook one more module; False for a scripted one."""
        if isinstance(module, torch.jit.ScriptModule):
            return False
        hooks = self._hooks_for(path, module)
        if hooks.first is not None:
            prepend = self._before_others
            self._handles.append(module.register_forward_pre_hook(hooks.first, with_kwargs=True, prepend=prepend))
        if hooks.last is not None:
            always = self._also_raised
            self._handles.append(module.register_forward_hook(hooks.last, with_kwargs=True, always_call=always))
        return True

    def _hooks_for(self, path: str, module: nn.Module) -> _Hooks:
        """The same functions each time: with new ones in each sampled step, Python would collect garbage more often."""
        guard = current_guard()
        if not self._hooks or guard is not self._guard:
            self._guard, self._hooks = guard, {}
            self._callbacks = self._before and guarded(self._before), self._after and guarded(self._after)
        key = path, id(module)
        known = self._hooks.get(key)
        if known is None or known.module() is not module:
            before, after = self._callbacks
            known = self._hooks[key] = _Hooks(
                weakref.ref(module),
                None if before is None else _before_hook(before, path),
                None if after is None else _after_hook(after, path),
            )
        return known

    def remove(self) -> None:
        """Remove every hook."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


@dataclass(frozen=True)
class _Hooks:
    """What is registered on one module."""

    module: weakref.ref[nn.Module]
    first: Callable[..., None] | None
    last: Callable[..., Any] | None


def follow_modules(model: nn.Module, running: list[str]) -> ModuleCalls:
    """Inside the block, keep in `running` the stack of the paths of modules whose forward is running."""

    def leave(*_: object) -> None:
        if running:
            running.pop()

    return ModuleCalls(
        model.named_modules(),
        before=lambda path, *_: running.append(path),
        after=leave,
        also_raised=True,
    )


@contextlib.contextmanager
def run_new_hooks(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
    """Run the hooks that the block attaches to `module`, for the call that has just begun.

    It is for global hooks: when PyTorch runs one, it has already listed the module's own hooks that run before
    `forward`. Those that run after it would be called without them.
    """
    known = hooks_on(module, "_forward_pre_hooks")
    yield
    for hook in hooks_on(module, "_forward_pre_hooks"):
        if all(hook is not one for one in known):
            hook(module, args, kwargs)


class Outputs:
    """Calls `after(path, output)` for each call of one module. For loops that call a small module many times in a step.

    It costs less than `ModuleCalls`: the hook takes no keyword arguments, and is not called for a forward that raised.
    A scripted module is left out.
    """

    def __init__(self, path: str, module: nn.Module, after: Callable[[str, Any], None]) -> None:
        self._path, self._module, self._after = path, module, after
        self._handle: RemovableHandle | None = None

    def __enter__(self) -> Self:
        if not isinstance(self._module, torch.jit.ScriptModule):
            self._handle = self._module.register_forward_hook(_output_hook(guarded(self._after), self._path))
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the hook."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


# Functions, not bound methods or partials: copy.deepcopy of a hooked model, for example for an average of the weights,
# keeps a function as it is, but would copy the object that a method is bound to.


# A hook that another hook removes during the same call is still called by PyTorch, but without the keyword arguments.


def _before_hook(before: Before, path: str) -> Callable[..., None]:
    def hook(module: nn.Module, args: tuple[Any, ...], *kwargs: dict[str, Any]) -> None:
        if kwargs:
            before(path, module, args, kwargs[0])

    return hook


def _after_hook(after: After, path: str) -> Callable[..., Any]:
    def hook(module: nn.Module, args: tuple[Any, ...], *kwargs_and_output: Any) -> Any:
        return after(path, module, args, *kwargs_and_output) if len(kwargs_and_output) == 2 else None

    return hook


def _output_hook(after: Callable[[str, Any], None], path: str) -> Callable[..., None]:
    def hook(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        after(path, output)

    return hook


@contextlib.contextmanager
def every_call(after: Callable[[nn.Module, Any], None]) -> Iterator[None]:
    """Call `after(module, output)` for every module of the process, also scripted ones, by PyTorch's global hook."""
    notify = guarded(after)
    handle = register_module_forward_hook(lambda module, _args, output: notify(module, output))
    try:
        yield
    finally:
        handle.remove()
