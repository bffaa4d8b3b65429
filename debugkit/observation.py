"""An observation is a frozen dataclass of plain data. Its decorator names the probe or function that makes it.

    @measured_by(".measure:replace_sample_zero", cost=3, requires=("batch",))   # an active measurement: a function
    @dataclass(frozen=True, slots=True)
    class BatchIndependence: ...

    @observed_by(".measure:LossOperandsProbe")                                   # a passive one: a Probe
    @dataclass(frozen=True, slots=True)
    class LossOperands: ...

An observation can have both: check() measures it, and a probe makes it in a live loop (`in_loop=`).

The reference is `module:name`, relative to the module of the observation. It is imported when the measurement runs, so
that the observation and its rule can be imported without torch. Plain data means str, int, float, bool, None, tuples of
these, `SourceLine`, and dataclasses of plain data. Tensors and modules are not allowed. Judges can therefore be tested
with made-up numbers, and a report can be written without the model.

`cost` is given in forward passes of the whole batch. A backward pass counts as two, so a training step costs three.
Reading parameters or data costs 0. The cost is stated only here. Budgets, the rule table and the rule pages use it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Part = Literal["batch", "loss", "samples", "optimizer", "dataloader"]
"""What a measurement requires: an argument of check(), a loss, or a batch whose first dimension is that of the samples.
check() has both; for a recorded call of a model, they may be unknown."""
Source = Literal["debugkit.watch", "debugkit.integrations.hydra.check_config"]
AnyClass = TypeVar("AnyClass", bound=type)
_ATTRIBUTE, _IN_LOOP = "__measurement__", "__measurement_in_loop__"


@dataclass(frozen=True, slots=True)
class Measurement:
    """The source of an observation: a Probe, a function of the setup, or a public function that provides it."""

    observation: type
    kind: Literal["probe", "function", "provided"]
    reference: str
    """`package.module:name`; for `provided`, the public function that makes it."""
    cost: float = 0.0
    requires: tuple[Part, ...] = ()
    processes: int = 1
    """How many processes must take part."""
    declared: str | None = None
    """The field of `Declare` that it tests: where the user has set that field, the budget is spent on it first."""

    def load(self) -> Any:
        """Import the Probe class or the function. Raises ImportError, AttributeError."""
        module, _, name = self.reference.partition(":")
        return getattr(importlib.import_module(module), name)

    @property
    def name(self) -> str:
        """The last part of the reference in words, for progress messages."""
        return self.reference.rpartition(":")[2].replace("_", " ")


def observed_by(probe: str, *, processes: int = 1, in_loop: str | None = None) -> Callable[[AnyClass], AnyClass]:
    """Declare that the Probe at `probe`, a `module:name`, makes the observation while a step runs.

    `in_loop` refers to the Probe that makes it under watch(), where that is another one.
    """

    def decorate(cls: AnyClass) -> AnyClass:
        if in_loop is not None:
            _attach(cls, "probe", in_loop, under=_IN_LOOP)
        return _attach(cls, "probe", probe, processes=processes)

    return decorate


def measured_by(
    function: str,
    *,
    cost: float,
    requires: Sequence[Part] = (),
    declared: str | None = None,
    in_loop: str | None = None,
) -> Callable[[AnyClass], AnyClass]:
    """Declare that the function at `function`, a `module:name`, makes the observation from a setup.

    check() runs it at most once, even if several rules need it. It runs inside `preserved(setup)`, so it may train,
    perturb and reseed. It raises `NotExamined("one-sentence reason")` if it does not apply to this setup. Any other
    exception is converted to such a reason. `declared` is the field of `Declare` that it tests, if it tests one.
    `in_loop` refers to the Probe that makes the same observation under watch().
    """

    def decorate(cls: AnyClass) -> AnyClass:
        if in_loop is not None:
            _attach(cls, "probe", in_loop, under=_IN_LOOP)
        return _attach(cls, "function", function, cost, tuple(requires), declared=declared)

    return decorate


def provided_by(source: Source) -> Callable[[AnyClass], AnyClass]:
    """Declare that a public function makes the observation, for example from a loop or a configuration."""
    return lambda cls: _attach(cls, "provided", source)


def measurement_of(observation: type) -> Measurement:
    """The measurement of an observation. Raises LookupError if it has none."""
    found = vars(observation).get(_ATTRIBUTE)
    if not isinstance(found, Measurement):
        raise LookupError(
            f"{observation.__qualname__} names no measurement: decorate it with @observed_by or @measured_by."
        )
    return found


def probes_of(observations: Iterable[type]) -> list[Measurement]:
    """The passive measurements of these observations, in a fixed order."""
    found = (measurement_of(kind) for kind in set(observations))
    return sorted((one for one in found if one.kind == "probe"), key=lambda one: one.observation.__qualname__)


def probes_in_loop(observations: Iterable[type]) -> list[Measurement]:
    """The probes that make these observations under watch(), in a fixed order."""
    kinds = set(observations)
    own = [one for kind in kinds if isinstance(one := vars(kind).get(_IN_LOOP), Measurement)]
    others = probes_of(kinds - {one.observation for one in own})
    return sorted([*others, *own], key=lambda one: one.observation.__qualname__)


def functions_of(observations: Iterable[type]) -> list[Measurement]:
    """The active measurements of these observations, cheapest first."""
    found = (measurement_of(kind) for kind in set(observations))
    functions = (one for one in found if one.kind == "function")
    return sorted(functions, key=lambda one: (one.cost, one.observation.__qualname__))


def _attach(
    cls: AnyClass,
    kind: Literal["probe", "function", "provided"],
    reference: str,
    cost: float = 0.0,
    requires: tuple[Part, ...] = (),
    processes: int = 1,
    declared: str | None = None,
    under: str = _ATTRIBUTE,
) -> AnyClass:
    absolute = f"{cls.__module__}{reference}" if reference.startswith(".") else reference
    setattr(cls, under, Measurement(cls, kind, absolute, cost, requires, processes, declared))
    return cls
