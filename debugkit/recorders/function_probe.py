"""The base class of probes that observe calls of torch functions."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from debugkit.probe import Observed, Probe
from debugkit.recorders.function_calls import FunctionCalls, FunctionObserver, attach, detach
from debugkit.recorders.module_calls import ModuleCalls, follow_modules
from debugkit.setup import TrainingSetup

Watching = TypeVar("Watching", bound=FunctionObserver)


class FunctionProbe(Probe[Observed], Generic[Observed, Watching]):
    """Attaches `calls`, an observer. With `running`, the stack of running modules is kept there.

    Subclasses define `observed` in place of `observation`, which raises the observer's error if it failed.
    """

    def __init__(self, setup: TrainingSetup, calls: Watching, running: list[str] | None = None) -> None:
        super().__init__(setup)
        self.calls = calls
        self._mode: FunctionCalls | None = None
        self._following = ModuleCalls() if running is None else follow_modules(setup.model, running)

    def __enter__(self) -> Self:
        self._following.__enter__()
        self._mode = attach(self.calls)
        return self

    def __exit__(self, *_: object) -> None:
        if self._mode is not None:
            detach(self.calls, self._mode)
            self._mode = None
        self._following.remove()

    @property
    def observation(self) -> Observed:
        if self.calls.error is not None:
            raise self.calls.error
        return self.observed()

    def observed(self) -> Observed:
        """The observation."""
        raise NotImplementedError
