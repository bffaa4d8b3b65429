"""Probes: passive observers of a training step, one per kind of observation. They never change a result.

A probe is a context manager. `check()` attaches it for one observed step; `watch()` attaches the same class to a live
loop. Subclass `Probe`, override the events you need (`debugkit.observer.Observer` lists them), and return plain data:

    class LossOperandsProbe(Probe[LossOperands]):
        def __enter__(self) -> Self: ...                     # attach hooks or modes
        def __exit__(self, *error: object) -> None: ...      # remove all of them, also after an exception
        def before_backward(self, losses: Sequence[Tensor], /) -> None: ...
        @property
        def observation(self) -> LossOperands: ...           # may raise NotExamined("one-sentence reason")

The observation class refers to the probe: `@observed_by(".measure:LossOperandsProbe")`.

A probe must not keep a graph, batch or activation alive between events. It stores shapes, names, detached scalars and
weak references. Its hooks return None. It computes on tensors under `torch.no_grad()`. It should read tensor values in
`end_step`, with one synchronisation per step, and earlier only if this is unavoidable. If the step raises,
`step_failed(error, phase)` is called instead of the remaining events. Under `watch()`, `setup.batch` may be None and
`setup.optimizers` may be empty.

After `end_step`, `.observation` describes the step that has just ended. An observation type that covers several steps
documents this and keeps a bounded history. Rules are judged after each step. A finding with the same code and place as
an earlier one is not repeated.
"""

from __future__ import annotations

from typing import ClassVar, Generic, Literal, Self, TypeVar, get_args, get_origin

from debugkit.observer import Observer
from debugkit.setup import TrainingSetup

Observed = TypeVar("Observed")

Phase = Literal["forward", "backward", "optimizer", "done"]
"""The part of the step that is running or that failed."""
PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer", "done")

FIRST_STEPS = 32
"""`watch()` examines this many first steps in full: most faults show there. Later, expensive probes are sampled."""
THOROUGH_STEPS = 3
"""The values inside the model are recorded in this many first steps; later they are sampled."""
SETTLING_STEPS = 10
"""`watch_first` for probes that wait until every optimizer has stepped, or for values that grow at first."""
SAMPLED_EVERY = 13
"""`watch_every` for probes with a cost in each step. It is prime, so that it does not coincide with the period of a
loop that alternates optimizers or accumulates gradients."""


class Probe(Observer, Generic[Observed]):
    """Base class of all probes. It attaches no hooks and ignores all events."""

    yields: ClassVar[type] = object
    """The observation type, from `Probe[…]`."""
    complete_after: ClassVar[Phase] = "forward"
    """The phase that must have completed without an error for the observation to be valid."""
    partial: ClassVar[bool] = False
    """True if the observation is valid even if the forward pass raised."""
    watch_steps: ClassVar[int | None] = None
    """Under `watch()`, attach for this many of the examined steps only (for expensive recorders). None means all."""
    watch_first: ClassVar[int] = FIRST_STEPS
    """Under `watch()`, attach in this many first steps of each optimizer before `watch_every` applies."""
    covers_run: ClassVar[bool] = False
    """True if the observation is a record of the run so far that is expensive to make. Under `watch()`, it is made only
    in the steps after which the whole run is judged."""
    watch_every: ClassVar[int] = 1
    """Under `watch()`, after the first steps, attach in one of this many steps. `__enter__` can run repeatedly."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in getattr(cls, "__orig_bases__", ()):
            origin = get_origin(base)
            if isinstance(origin, type) and issubclass(origin, Probe):
                cls.yields = get_args(base)[0]

    def __init__(self, setup: TrainingSetup) -> None:
        self.setup = setup

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def step_failed(self, error: Exception, phase: Phase, /) -> None:
        """The step raised `error` in `phase`. `end_step` is the only event of this step that may follow."""

    def end_step(self, step: int, /) -> None:
        """The step with this number has ended, with or without an error."""

    def loop_ended(self) -> None:
        """The watched loop ended without an error. Everything after its last step is complete."""

    def loop_failed(self) -> None:
        """The watched loop raised. Override this if the observation also covers the incomplete step."""

    @property
    def observation(self) -> Observed:
        """The observation, a frozen dataclass of plain data. Raises NotExamined."""
        raise NotImplementedError
