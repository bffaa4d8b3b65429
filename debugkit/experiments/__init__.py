"""Experiments: controlled interventions, one file each. `check()` runs each at most once, however many rules need it.

    @experiment(BatchIndependence, cost=3, requires=("batch",))
    def replace_sample_zero(subject: Subject) -> BatchIndependence: ...

`cost` is in forward passes of the whole batch (a backward counts two, so a training step is three; reading parameters
or data is 0). The driver runs every experiment inside `restored(subject)`: it may train, perturb and reseed freely.
Where the question has no meaning for this subject, raise `NotExamined("one sentence why")`; any other exception
becomes such a sentence too. `debugkit.experiments.passes` has what most need: evaluation passes that draw alike, and
the floor below which a difference says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from debugkit.subject import Subject

Part = Literal["batch", "optimizer", "dataloader"]
Run = Callable[[Subject], object]
AnyRun = TypeVar("AnyRun", bound=Run)


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment and what it costs."""

    yields: type
    run: Run
    cost: float
    requires: tuple[Part, ...]


EXPERIMENTS: dict[type, Experiment] = {}
"""Observation type → the experiment that makes it; filled as experiment modules are imported."""


def experiment(yields: type, *, cost: float, requires: Sequence[Part] = ()) -> Callable[[AnyRun], AnyRun]:
    """Register `run(subject) -> yields` as the experiment that makes `yields`."""

    def register(run: AnyRun) -> AnyRun:
        EXPERIMENTS[yields] = Experiment(yields, run, cost, tuple(requires))
        return run

    return register
