"""The base class of probes that walk the graph behind the loss, just before backward."""

from __future__ import annotations

from typing import Self

from debugkit.finding import NotExamined
from debugkit.probe import Observed, Probe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.setup import TrainingSetup


class GraphProbe(Probe[Observed]):
    """Hooks modules by `calls`. A subclass sets `seen` in `before_backward`, and drops in `forget` what it holds."""

    def __init__(self, setup: TrainingSetup, calls: ModuleCalls) -> None:
        super().__init__(setup)
        self.seen: Observed | None = None
        self._calls = calls

    def __enter__(self) -> Self:
        self._calls.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.remove()
        self.forget()

    def forget(self) -> None:
        """Drop all nodes and tensors of the step."""

    @property
    def observation(self) -> Observed:
        """What the last backward walked. Raises NotExamined if there was none."""
        if self.seen is None:
            raise NotExamined("backward was not called, so there was no graph to walk.")
        return self.seen
