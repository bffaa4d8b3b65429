"""The range of every module's output during one observed step; watch() yields the same from its own hooks."""

from __future__ import annotations

from typing import Self

from debugkit.monitor.module_hooks import ModuleHooks
from debugkit.observations.activations import Activations
from debugkit.probes import Probe, probe
from debugkit.subject import Subject


@probe(Activations)
class ActivationsProbe(Probe[Activations]):
    """Ranges stay on the device until the step ends."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._hooks = ModuleHooks(subject.model)
        self._last = Activations(())

    def __enter__(self) -> Self:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__()

    def end_step(self, _step: int, /) -> None:
        self._last = self._hooks.observation

    @property
    def observation(self) -> Activations:
        return self._last
