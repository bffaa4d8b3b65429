"""One function mode for all probes that observe the calls of torch functions.

Each mode on PyTorch's stack costs some microseconds for every call, and sees the properties that the modes above it
read. Here the probes share one mode, which determines once for each function who observes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, ClassVar, TypeGuard

import torch
from torch.overrides import TorchFunctionMode

from debugkit._torch_private import in_transform, leave, mode_stack, without_torch_function

_MOST_FUNCTIONS = 4096
"""Remembered; a program may make new functions in each step."""


def property_read_by(func: Callable[..., Any]) -> str | None:
    """The property of a tensor that an intercepted function reads, such as `data` or `T`; None for other functions."""
    if getattr(func, "__name__", "") != "__get__":
        return None
    name: str = getattr(getattr(func, "__self__", None), "__name__", "")
    return name


class FunctionObserver:
    """Receives calls of torch functions by the program. What it calls itself, no function mode sees.

    Calls in compiled code are not observed. Calls in a tracer or a `torch.func` transform are, with `in_transforms`.
    If an observer raises, it keeps the exception in `error` and receives no further calls, and the program continues.
    With `may_stop`, an exception of `before` reaches the program, in place of the call.
    """

    functions: ClassVar[Collection[str]] = ()
    """The names of the functions whose calls are observed."""
    in_transforms: ClassVar[bool] = False
    may_stop: ClassVar[bool] = False
    error: Exception | None = None

    def name_of(self, func: Callable[..., Any]) -> str | None:
        """The name under which `before` and `after` receive a function; None if they do not. Called once for each."""
        name: str = getattr(func, "__name__", "")
        return name if name in self.functions else None

    def before(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], /) -> Any:
        """A call begins. `after` receives the result."""

    def after(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], output: Any, begun: Any, /) -> None:
        """The call has returned `output`."""


Listed = tuple[FunctionObserver, str]


class FunctionCalls(TorchFunctionMode):
    """The shared mode. Only `attach` and `detach` put it on PyTorch's stack and take it off."""

    def __init__(self) -> None:
        super().__init__()
        self.observers: list[FunctionObserver] = []
        self._known: dict[Any, tuple[tuple[Listed, ...], tuple[Listed, ...]]] = {}

    def change(self, observers: Sequence[FunctionObserver]) -> None:
        """Notify these observers from now on."""
        self.observers = list(observers)
        self._known.clear()

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        befores, afters = self._observers_of(func)
        if not afters:
            return func(*args, **kwargs)
        if in_transform():
            befores, afters = _in_transforms(befores), _in_transforms(afters)
        begun: dict[FunctionObserver, Any] = {}
        if befores:
            with without_torch_function():
                for observer, name in befores:
                    begun[observer] = self._guarded(observer, observer.may_stop, observer.before, name, args, kwargs)
        output = func(*args, **kwargs)
        with without_torch_function():
            for observer, name in afters:
                self._guarded(observer, False, observer.after, name, args, kwargs, output, begun.get(observer))
        return output

    def _observers_of(self, func: Callable[..., Any]) -> tuple[tuple[Listed, ...], tuple[Listed, ...]]:
        """Those with a `before` of their own, and all."""
        try:
            return self._known[func]
        except (KeyError, TypeError):  # it is new, or cannot be hashed
            pass
        named = [(observer, observer.name_of(func)) for observer in self.observers]
        afters = tuple((observer, name) for observer, name in named if name is not None)
        befores = tuple(one for one in afters if type(one[0]).before is not FunctionObserver.before)
        if len(self._known) < _MOST_FUNCTIONS and isinstance(func, Hashable):
            self._known[func] = befores, afters
        return befores, afters

    def _guarded(self, observer: FunctionObserver, may_stop: bool, notify: Callable[..., Any], *given: Any) -> Any:
        if observer.error is not None:
            return None
        try:
            return notify(*given)
        except Exception as error:
            if may_stop:
                raise
            observer.error = error
            return None


def _in_transforms(listed: tuple[Listed, ...]) -> tuple[Listed, ...]:
    return tuple(one for one in listed if one[0].in_transforms)


def is_shared(mode: Any) -> TypeGuard[FunctionCalls]:
    """Whether a mode of PyTorch's stack is the shared one, which no probe owns."""
    return isinstance(mode, FunctionCalls)


def attach(observer: FunctionObserver) -> FunctionCalls:
    """Notify `observer` of the calls of this thread, by the mode that is on the stack or by a new one. Returns it."""
    mode = next((mode for mode in mode_stack() if is_shared(mode)), None)
    if mode is None:
        mode = FunctionCalls()
        mode.__enter__()  # type: ignore[no-untyped-call]
    mode.change([*mode.observers, observer])
    return mode


def detach(observer: FunctionObserver, mode: FunctionCalls) -> None:
    """Stop notifying it. The mode leaves the stack with its last observer."""
    mode.change([other for other in mode.observers if other is not observer])
    if not mode.observers:
        leave(mode)
