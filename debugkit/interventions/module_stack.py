"""The module that a forward pass is executing at the moment."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from debugkit.recorders.module_calls import ModuleCalls
from debugkit.setup import TrainingSetup


class ModuleStack:
    """Inside the `with` block, `innermost` is the path of the module that is running, or None."""

    def __init__(self, setup: TrainingSetup) -> None:
        self._running: list[str] = []
        self._calls = ModuleCalls(setup.named_modules, before=self._push, after=self._pop, also_raised=True)

    @property
    def innermost(self) -> str | None:
        return self._running[-1] if self._running else None

    def __enter__(self) -> Self:
        self._calls.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._calls.remove()

    def _push(self, path: str, *_: Any) -> None:
        self._running.append(path)

    def _pop(self, path: str, *_: Any) -> None:
        if self._running and self._running[-1] == path:
            self._running.pop()
