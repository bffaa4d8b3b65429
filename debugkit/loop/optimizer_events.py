"""The events of a loop's optimizers, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from debugkit.finding import SourceLine
from debugkit.loop.group_rates import GroupRates
from debugkit.loop.plateaus import Plateau
from debugkit.observation import provided_by
from debugkit.plain_data import PlainData

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
"""foreign_schedule: a step of a scheduler whose optimizer never steps and shares parameters with a watched one."""


@dataclass(frozen=True)
class LoopEvent(PlainData):
    """One event. `order` counts all events of the run from 0.

    `optimizers` are the numbers of the optimizers whose parameters are zeroed, clipped or stepped. For a clip, `passed`
    is the number of parameters it received, `limit` its bound, and `scale` the loss scale if the gradients were still
    multiplied by it; `clipped` is how many parameters with a gradient of the first optimizer it covered, out of
    `clippable`. `step` is the number of steps that this optimizer had made before. `learning_rate` is that of the first
    group after the event, `largest_rate` the largest of all groups. `integer` marks a step of a LambdaLR that computes
    with integers and divides with `//`. `planned` is the length of the schedule in its own steps, and `taken` how many
    of them it has made. `half_period` is the `T_max` of a CosineAnnealingLR, and `built` the line that built it.
    """

    kind: EventKind
    order: int
    optimizers: tuple[int, ...]
    step: int
    at: SourceLine | None
    clipped: int = 0
    clippable: int = 0
    learning_rate: float | None = None
    largest_rate: float | None = None
    integer: bool = False
    planned: int | None = None
    taken: int = 0
    passed: int = 0
    limit: float | None = None
    scale: float | None = None
    half_period: int | None = None
    built: SourceLine | None = None


@dataclass(frozen=True)
class GradientUse(PlainData):
    """The gradients that one `step()` of one optimizer used, judged by a few sampled parameters.

    `accumulations` is the number of gradients that were added to a parameter since that optimizer's previous `step()`.
    `reset` is whether, for every sampled parameter, at least one of them found `.grad` None or zero.
    """

    optimizer: int
    step: int
    accumulations: int
    reset: bool
    at: SourceLine | None
    unchanged: bool = False
    """Whether the gradients were not written since the previous step: the same tensors, or None both times."""


@provided_by("debugkit.watch")
@dataclass(frozen=True)
class OptimizerEvents(PlainData):
    """The events and uses of a run so far: the last few hundred of each, oldest first. Optimizers are numbered from 0.

    For each optimizer: `labels` is its class name, `steps` the number of its steps, `moved` whether its parameters have
    changed since it was first seen, by any code, and `initial_rates` the `initial_lr` of its first group, which a
    scheduler writes. `backwards` and `skipped` (by a GradScaler) count those of the whole run.
    """

    labels: tuple[str, ...]
    steps: tuple[int, ...]
    backwards: int
    skipped: int
    events: tuple[LoopEvent, ...]
    uses: tuple[GradientUse, ...]
    moved: tuple[bool, ...] = ()
    initial_rates: tuple[float | None, ...] = ()
    fresh: tuple[int, ...] = ()
    """For each optimizer, how often a gradient found `.grad` None since the optimizer's previous step."""
    built: tuple[SourceLine | None, ...] = ()
    """For each optimizer, the line that built it."""
    foreign_steps: int = 0
    """The steps of optimizers that are not watched and hold a parameter of a watched one."""
    plateaus: tuple[Plateau, ...] = ()
    """The first steps of each ReduceLROnPlateau."""
    group_rates: tuple[GroupRates, ...] = ()
    """Of each optimizer that was built with different learning rates."""
