"""Probes: passive observers of a training step, one file per thing observed. They never change a result.

A probe is a context manager. `check()` attaches it for one observed step; `watch()` attaches the same class to a live
loop. Declare it with `@probe`, subclass `Probe`, override the events you need, and return plain data:

    @probe(LossOperands)
    class LossOperandsProbe(Probe[LossOperands]):
        def __enter__(self) -> Self: ...                     # attach hooks or modes
        def __exit__(self, *error: object) -> None: ...      # remove every one, also after an exception
        def before_backward(self, loss: torch.Tensor, /) -> None: ...
        @property
        def observation(self) -> LossOperands: ...           # may raise NotExamined("one sentence why")

Rules of the house: keep no graph, batch or activation alive between events (hold shapes, names, detached scalars,
weak references); return every hook's `None`; do arithmetic on tensors under `torch.no_grad()`; never read a tensor's
value while the step runs if it can wait until `end_step` (one synchronisation a step).

Events, in order: forward and loss run → `before_backward(loss)` → `after_backward()` →
`before_optimizer_step(optimizer)` → `after_optimizer_step(optimizer)` → `end_step(step)`; `step_failed(error, phase)`
replaces the rest if anything raises. With accumulation the first four repeat. `subject.batch` and `subject.optimizers`
may be None and empty under `watch()`.

After `end_step`, `.observation` speaks of the step just ended; a type that tells of several steps says so and keeps a
bounded history itself. Judges are called after each step and a finding with a known code and place is not repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import torch

from debugkit.observations.gradients import GradientNorms
from debugkit.subject import Subject

Observed = TypeVar("Observed")
AnyProbe = TypeVar("AnyProbe", bound="type[Probe[Any]]")

Phase = Literal["forward", "backward", "optimizer", "done"]
"""How far a step has come: the name of the part that is running or failed."""
PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer", "done")

FIRST_STEPS = 32
"""Steps in which `watch()` looks at everything: most mistakes show there. From then on what is dear is sampled."""
SAMPLED_EVERY = 7
"""`watch_every` of probes that cost something in each step. Prime, so that it does not fall in step with a loop that
alternates optimizers or accumulates."""


class Probe(Generic[Observed]):
    """Base of every probe: attaches nothing and hears every event in silence."""

    yields: ClassVar[type] = object
    """The observation type; set by `@probe`."""
    complete_after: ClassVar[Phase] = "forward"
    """The phase that must have ended without an error for the observation to mean anything."""
    partial: ClassVar[bool] = False
    """True if the observation means something even when the forward pass raised."""
    watch_steps: ClassVar[int | None] = None
    """Under `watch()`, attach for this many steps only (a recorder too dear to leave on); None for every step."""
    watch_every: ClassVar[int] = 1
    """Under `watch()`, after the first steps, attach for one step in so many: `__enter__` follows `__exit__` again."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def before_backward(self, loss: torch.Tensor, /) -> None:
        """The graph is whole; `loss` is the root that backward starts from."""

    def after_backward(self) -> None:
        """Gradients are in `.grad`."""

    def gradient_norms_read(self, optimizer: torch.optim.Optimizer, norms: GradientNorms, /) -> None:
        """`watch()` has read these norms, just before `before_optimizer_step`: no need to take them again."""

    def before_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        """`optimizer.step()` is about to run."""

    def after_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        """`optimizer.step()` has run."""

    def step_failed(self, error: Exception, phase: Phase, /) -> None:
        """The step raised `error` while in `phase`; no other event of this step follows."""

    def end_step(self, step: int, /) -> None:
        """The step with this number is over, well or not."""

    def loop_ended(self) -> None:
        """The watched loop is over, well: what came after its last step is complete."""

    def loop_failed(self) -> None:
        """The watched loop raised. Override it if the observation says something of the step that did not end."""

    @property
    def observation(self) -> Observed:
        """What was seen, as a frozen dataclass of plain data. Raises NotExamined."""
        raise NotImplementedError


PROBES: dict[type, type[Probe[Any]]] = {}
"""Observation type → the probe that makes it; filled as probe modules are imported."""


def probe(
    yields: type,
    *,
    complete_after: Phase = "forward",
    partial: bool = False,
    watch_steps: int | None = None,
    watch_every: int = 1,
) -> Callable[[AnyProbe], AnyProbe]:
    """Register the class as the probe that makes `yields`."""

    def register(cls: AnyProbe) -> AnyProbe:
        cls.yields, cls.complete_after, cls.partial = yields, complete_after, partial
        cls.watch_steps, cls.watch_every = watch_steps, watch_every
        PROBES[yields] = cls
        return cls

    return register
