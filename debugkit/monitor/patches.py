"""Replaces functions of PyTorch for a while, and puts exactly what was there back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

_INHERITED = object()


class Patches:
    """`patch(owner, name, wrap)` inside the `with` block; everything is undone on leaving, in reverse order.

    A patch that someone else has put on top meanwhile is left alone, since it may hold ours: ours then only passes on.
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
    ) -> None:
        """Call `before(*args, **kwargs)` and `after(*args, **kwargs)` around `owner.name`, which keeps its result.

        `after` is not called where it raised. A missing attribute is passed over: PyTorch's names come and go.
        """
        original = getattr(owner, name, None)
        if original is None:
            return
        previous = vars(owner).get(name, _INHERITED)

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if before is not None and self._live:
                before(*args, **kwargs)
            result = original(*args, **kwargs)
            if after is not None and self._live:
                after(*args, **kwargs)
            return result

        setattr(owner, name, wrapper)

        def undo() -> None:
            if vars(owner).get(name) is not wrapper:
                return
            if previous is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, previous)

        self._undo.append(undo)
