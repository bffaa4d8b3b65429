"""Temporary wrappers around functions of PyTorch, which restore exactly what was there before."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from debugkit.recorders.guard import guarded, guarded_replacement

_INHERITED = object()
_LINK = "__debugkit_link__"


@dataclass
class _Link:
    """What a wrapper replaced: the original, or the wrapper of another Patches that was there before."""

    calls: Callable[..., Any]
    previous: Any
    """What stood in the owner itself; `_INHERITED` if nothing did."""


def _leave_the_chain(outermost: Any, wrapper: Callable[..., Any], own: _Link) -> None:
    """Remove `wrapper` from below other wrappers, so that nothing refers to what it observes."""
    outer = outermost
    while (link := getattr(outer, _LINK, None)) is not None:
        if link.calls is wrapper:
            link.calls, link.previous = own.calls, own.previous
            outer.__wrapped__ = own.calls
            return
        outer = link.calls


class Patches:
    """Call `around(owner, name, …)` inside the `with` block; on exit every patch is undone, in reverse order.

    Several may patch one function, and end in any order. If other code has replaced the function in the meantime, its
    replacement stays, because it may call ours; ours then only calls the original.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._live = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live = False
        while self._undo:
            self._undo.pop()()

    def around(
        self,
        owner: Any,
        name: str,
        *,
        before: Callable[..., None] | None = None,
        after: Callable[..., None] | None = None,
        returned: Callable[..., None] | None = None,
        wrapped: Callable[..., Any] | None = None,
    ) -> None:
        """Call `before(*args, **kwargs)` and `after(*args, **kwargs)` around `owner.name`, whose result is unchanged.

        `returned(result, *args, **kwargs)` gets the result too, and `wrapped(result, *args, **kwargs)` returns what the
        caller gets in its place. None of the last three is called if `owner.name` raises. A missing attribute is
        skipped: names differ between versions of PyTorch.
        """
        original = getattr(owner, name, None)
        if original is None:
            return
        link = _Link(original, vars(owner).get(name, _INHERITED))
        before, after, returned = (one and guarded(one) for one in (before, after, returned))
        wrapped = wrapped and guarded_replacement(wrapped)

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if before is not None and self._live:
                before(*args, **kwargs)
            result = link.calls(*args, **kwargs)
            if after is not None and self._live:
                after(*args, **kwargs)
            if returned is not None and self._live:
                returned(result, *args, **kwargs)
            if wrapped is not None and self._live:
                result = wrapped(result, *args, **kwargs)
            return result

        setattr(wrapper, _LINK, link)
        setattr(owner, name, wrapper)

        def undo() -> None:
            if vars(owner).get(name) is not wrapper:
                _leave_the_chain(vars(owner).get(name), wrapper, link)
            elif link.previous is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, link.previous)

        self._undo.append(undo)

    def around_overrides(
        self,
        cls: type,
        name: str,
        *,
        before: Callable[..., None] | None = None,
        after: Callable[..., None] | None = None,
    ) -> None:
        """`around` the method of `cls` and of each subclass that overrides it; subclasses defined later are missed."""
        for owner in (cls, *_subclasses(cls)):
            if name in vars(owner):
                self.around(owner, name, before=before, after=after)


def _subclasses(cls: type) -> Iterator[type]:
    subclass: type
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
