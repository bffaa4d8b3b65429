"""What the loop did with its optimizers, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from debugkit.finding import SourceLine
from debugkit.observations.plain import PlainData

EventKind = Literal[
    "zero_grad",
    "backward",
    "clip",
    "scaler_unscale",
    "scaler_step",
    "scaler_update",
    "scheduler_step",
    "foreign_schedule",
    "step",
]
"""foreign_schedule: a scheduler stepped for an optimizer that never steps, and that holds what a watched one holds."""


@dataclass(frozen=True)
class LoopEvent(PlainData):
    """One event. `order` counts all events of the run from 0.

    `optimizers` are the numbers of those concerned (of which it zeroes, clips or steps parameters); `clipped` is how
    many of the first one's parameters with a gradient a clip covered, of `clippable`; `passed` counts what it was
    handed and `limit` its bound. `step` is how many steps that optimizer had made before. `learning_rate` is the first
    group's, after the event.
    """

    kind: EventKind
    order: int
    optimizers: tuple[int, ...]
    step: int
    at: SourceLine | None
    clipped: int = 0
    clippable: int = 0
    learning_rate: float | None = None
    passed: int = 0
    limit: float | None = None


@dataclass(frozen=True)
class GradientUse(PlainData):
    """What one `step()` of one optimizer used.

    `accumulations` counts gradients added to a parameter since that optimizer's previous `step()`; `on_stale` of them
    were added to a gradient that this optimizer had already stepped with, and that was neither None nor zero.
    `reset` is whether at least one found None or zero. Of the few parameters looked at, the stalest counts.
    """

    optimizer: int
    step: int
    accumulations: int
    reset: bool
    at: SourceLine | None
    unchanged: bool = False
    """Nothing was written to the gradients since the step before: they are the same tensors, or None both times."""


@dataclass(frozen=True)
class OptimizerEvents(PlainData):
    """The events and uses of a run so far: the last few hundred of each, oldest first. Optimizers are numbered from 0.

    `labels` names them (`AdamW`, with the line that steps it); `steps` counts what each has made; `backwards` and
    `skipped` (by a GradScaler) count the run's. `moved` is whether parameters of each have changed since it was first
    seen, whoever changed them; `initial_rates` are the first groups' `initial_lr`, which a scheduler writes.
    """

    labels: tuple[str, ...]
    steps: tuple[int, ...]
    backwards: int
    skipped: int
    events: tuple[LoopEvent, ...]
    uses: tuple[GradientUse, ...]
    moved: tuple[bool, ...] = ()
    initial_rates: tuple[float | None, ...] = ()
