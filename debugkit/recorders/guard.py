"""Callbacks that run inside calls of the program and never raise into it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any, Self

_CURRENT: ContextVar[Guard | None] = ContextVar("guard", default=None)


class Guard:
    """Inside the block, `guarded(callback)` makes callbacks whose first exception is kept here as `error`.

    After an exception, the guard's callbacks do nothing: what they observed is no longer complete.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self._tokens: list[Token[Guard | None]] = []

    def __enter__(self) -> Self:
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._tokens.pop())

    def run(self, act: Callable[..., object], *given: Any) -> None:
        """Call `act` inside the block."""
        token = _CURRENT.set(self)
        try:
            act(*given)
        finally:
            _CURRENT.reset(token)


def current_guard() -> Guard | None:
    """The guard in whose block this is called."""
    return _CURRENT.get()


def guarded(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The callback, under the guard in whose block this is called. Outside of one, it is returned unchanged."""
    guard = _CURRENT.get()
    if guard is None:
        return callback

    def call(*args: Any, **kwargs: Any) -> Any:
        if guard.error is None:
            try:
                return callback(*args, **kwargs)
            except Exception as error:
                guard.error = error
        return None

    return call


def guarded_replacement(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Like `guarded`, for a callback that returns what takes the place of its first argument."""
    guard = _CURRENT.get()
    if guard is None:
        return callback

    def call(replaced: Any, *args: Any, **kwargs: Any) -> Any:
        if guard.error is None:
            try:
                return callback(replaced, *args, **kwargs)
            except Exception as error:
                guard.error = error
        return replaced

    return call
