"""Compare the inputs of passes without gradients with those of the training step before them."""

from __future__ import annotations

import contextlib
import itertools
import weakref
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from debugkit._torch_private import in_backward, in_transform, is_compiled
from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import own_line, user_line
from debugkit.probe import Probe
from debugkit.recorders.loader_reads import LoaderReads
from debugkit.recorders.module_calls import ModuleCalls, every_call
from debugkit.recorders.patches import Patches
from debugkit.rules.dk321_validation_on_training_batch import (
    PASSES,
    NamedValidation,
    SameData,
    Source,
    ValidationInputs,
    ValidationOnTraining,
)
from debugkit.rules.dk321_validation_on_training_batch.validation_names import (
    argument_for_validation,
    name_for_validation,
)
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_VALIDATIONS = 8
_MOVES = 32
"""Phases with passes for which no batch was read: a policy moves in an environment, and nothing is validated."""
_TENSORS = 8
_OF_A_DIMENSION = 3


@dataclass(frozen=True)
class _Inputs:
    """The tensors of a call or of a batch: their shapes, and a few hundred values of each."""

    shapes: tuple[torch.Size, ...]
    values: tuple[Tensor, ...]

    @classmethod
    def of(cls, given: Any) -> _Inputs:
        found = (t.detach() for _, t in tensors_in(given) if t.layout is torch.strided and t.numel() > 1)
        tensors = tuple(itertools.islice(found, _TENSORS))
        return cls(tuple(t.shape for t in tensors), tuple(map(_some_values, tensors)))

    def is_same(self, other: _Inputs) -> bool:
        """Whether all are equal, and some of the values are not all the same; waits for the device."""
        return (
            self.shapes == other.shapes
            and all(map(_are_equal, self.values, other.values))
            and any(map(_varies, self.values))
        )

    def is_within(self, other: _Inputs) -> bool:
        """Whether each is equal to one of `other`, and some of the values are not all the same."""
        return any(map(_varies, self.values)) and all(
            any(shape == s and _are_equal(value, v) for s, v in zip(other.shapes, other.values, strict=True))
            for shape, value in zip(self.shapes, self.values, strict=True)
        )


@dataclass(eq=False)
class _Phase:
    """What happened since the last training step."""

    passes: int = 0
    turns: int = 0
    unused: int = 0
    is_fresh: bool = False
    """Whether a batch of another loader was read since the last pass."""
    with_graph: bool = False
    """Whether the last pass recorded a graph, in eval mode: it may be the next training step."""
    is_dismissed: bool = False
    source: Source | None = None
    others: bool = False
    others_validate: bool = False
    """The same, without a graph: not the model that a script trains next."""
    batch: _Inputs | None = None
    """The last batch of the training loader."""
    in_eval: bool = True
    """Whether the model was in eval mode in each pass."""
    reread: tuple[str | None, int, SourceLine | None] | None = None
    """Of a loader that reads the training data set: its name for validation, the number of samples, and the line."""
    compared: int = 0
    """`id()` of the loader whose data set was compared last with that of the training loader."""
    is_other_data: bool = False
    """Whether a batch of other data was read."""
    at: SourceLine | None = None
    read_at: SourceLine | None = None
    watching: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


class ValidationInputsProbe(Probe[ValidationInputs]):
    """Observes the first validations through the hook of the model itself."""

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._calls = ModuleCalls([("", setup.model)], before=self._before, after=self._after, also_raised=True)
        self._reads = LoaderReads(self._delivered)
        self._patches = Patches()
        self._pending: _Inputs | None = None
        self._trained: _Inputs | None = None
        self._trained_before: _Inputs | None = None
        self._last_read: weakref.ref[Any] | None = None
        self._training_loader: weakref.ref[Any] | None = None
        self._phase = _Phase()
        self._running = self._steps = self._validations = self._moves = 0
        self._found: list[ValidationOnTraining] = []
        self._named: list[NamedValidation] = []
        self._same: list[SameData] = []
        self._other_data = 0

    def __enter__(self) -> Self:
        if is_compiled(self.setup.model):
            raise NotExamined("The model is compiled, so the hook would compile it again.")
        self._calls.__enter__()
        self._reads.__enter__()
        self._patches = Patches()
        self._patches.around(torch.autograd, "backward", before=self._trains)
        return self

    def __exit__(self, *error: object) -> None:
        self._phase.watching.close()
        self._patches.__exit__(None, None, None)
        self._reads.__exit__()
        self._calls.remove()
        self._pending = self._trained = self._trained_before = None

    def end_step(self, _step: int, /) -> None:
        self._steps += 1

    def loop_ended(self) -> None:
        self._close()

    @property
    def observation(self) -> ValidationInputs:
        return ValidationInputs(
            self._validations, tuple(self._found), tuple(self._named), tuple(self._same), self._other_data
        )

    def _delivered(self, loader: Any, _iteration: int, batch: Any) -> None:
        phase, is_training = self._phase, self._training_loader is not None and self._training_loader() is loader
        self._last_read = weakref.ref(loader)
        if not is_training:
            phase.unused += 1
            phase.is_fresh = True
            if not phase.is_other_data and phase.compared != id(loader):
                phase.compared = id(loader)
                self._compare_data(phase, loader)
            phase.read_at = phase.read_at or user_line()
        elif not torch.is_grad_enabled() or not self.setup.model.training:
            phase.batch = _Inputs.of(batch)

    def _compare_data(self, phase: _Phase, loader: Any) -> None:
        training = None if self._training_loader is None else self._training_loader()
        if training is None:  # nothing was trained yet: it may be the training loader
            return
        if not _has_same_rows(loader, training):
            phase.is_other_data, phase.reread = True, None
        elif phase.reread is None:
            several = (_length(training) or 0) >= PASSES
            name = name_for_validation(loader) if several else None
            phase.reread = name, _length(training.dataset) or 0, own_line()

    def _before(self, _path: str, model: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling() or in_backward() or in_transform():
            return
        if model is not self.setup.model:  # a copy, which has the same hooks
            self._phase.others |= not torch.is_grad_enabled()
            self._phase.others_validate |= not torch.is_grad_enabled()
            return
        self._running += 1
        if self._running > 1:
            return
        graph = torch.is_grad_enabled()
        inputs = None if self._phase.is_dismissed and not graph else _Inputs.of((args, kwargs))
        if graph:
            self._pending = inputs
        if not graph or not model.training:
            self._validates(inputs)
            self._phase.with_graph = graph

    def _after(self, _path: str, model: nn.Module, *_: Any) -> None:
        if model is self.setup.model and self._running:
            self._running -= 1

    def _validates(self, inputs: _Inputs | None) -> None:
        phase = self._phase
        phase.passes += 1
        phase.in_eval &= not self.setup.model.training
        phase.turns += phase.is_fresh
        phase.is_fresh = False
        if phase.is_dismissed or inputs is None or self._trained is None:
            phase.is_dismissed = True
            return
        if phase.passes == 1:
            phase.at = user_line()
        source = self._source(inputs)
        if source is None or phase.source not in (None, source):
            phase.is_dismissed = True
        elif phase.source is None:
            phase.source = source
            phase.watching.enter_context(every_call(self._calls_alone))

    def _source(self, inputs: _Inputs) -> Source | None:
        if self._trained is not None and inputs.is_same(self._trained):
            return "last"
        return "loader" if self._phase.batch is not None and inputs.is_within(self._phase.batch) else None

    def _calls_alone(self, module: nn.Module, _output: Any) -> None:
        """A module was called. One with parameters, outside of the model, may get the batches of the other loader."""
        if not self._running and module is not self.setup.model and next(module.parameters(), None) is not None:
            self._phase.others = True
            self._phase.others_validate |= not torch.is_grad_enabled()

    def _trains(self, *_: Any, **__: Any) -> None:
        if in_backward():
            return
        self._phase.is_dismissed |= self._phase.with_graph
        self._close()
        if self._pending is not None:
            self._trained_before, self._trained, self._pending = self._trained, self._pending, None
            self._training_loader = self._last_read

    def _close(self) -> None:
        phase, self._phase = self._phase, _Phase()
        phase.watching.close()
        self._note_names(phase)
        self._moves += phase.passes > 0 and phase.unused == 0 and phase.source is None
        if phase.passes < PASSES or phase.unused < PASSES:
            if self._moves == _MOVES and self._validations == 0:
                self.__exit__()
            return
        self._validations += 1
        if phase.source is not None and not phase.is_dismissed:
            self._found.append(
                ValidationOnTraining(
                    step=self._steps,
                    passes=phase.passes,
                    turns=phase.turns,
                    unused=phase.unused,
                    source=phase.source,
                    others=phase.others,
                    differ=self._differ(),
                    at=_place(phase.at, phase.read_at),
                )
            )
        if self._validations == _VALIDATIONS:
            self.__exit__()

    def _note_names(self, phase: _Phase) -> None:
        if not phase.passes or not phase.in_eval:
            return
        if phase.is_other_data:
            self._other_data += 1
        elif phase.reread is not None:
            name, samples, at = phase.reread
            if name is not None:
                self._same.append(SameData(self._steps, name, samples, at))
        elif phase.unused == 0 and phase.source == "last" and not phase.is_dismissed and phase.at is not None:
            named = argument_for_validation(phase.at)
            if named is not None and len(self._named) < _VALIDATIONS:
                self._named.append(
                    NamedValidation(self._steps, named[0], phase.others_validate, self._differ(), named[1])
                )

    def _differ(self) -> bool:
        one, two = self._trained_before, self._trained
        if one is None or two is None:
            return False
        return one.shapes != two.shapes or not all(map(_are_equal, one.values, two.values))


def _place(call: SourceLine | None, loop: SourceLine | None) -> SourceLine | None:
    """The line that calls the model, or the loop over the other loader if they are in different functions."""
    is_apart = call is not None and loop is not None and (call.file, call.function) != (loop.file, loop.function)
    return loop if is_apart else call


def _has_same_rows(one: Any, two: Any) -> bool:
    """Whether two loaders read one data set, or subsets of it with the same rows."""
    first, second = (getattr(loader, "dataset", None) for loader in (one, two))
    if first is None or first is second:
        return first is not None and one is not two
    if not isinstance(first, Subset) or not isinstance(second, Subset) or first.dataset is not second.dataset:
        return False
    return first.indices is second.indices or list(first.indices) == list(second.indices)


def _length(of: Any) -> int | None:
    try:
        return len(of)
    except TypeError:  # an iterable data set
        return None


def _some_values(tensor: Tensor) -> Tensor:
    """At most five values of each dimension, copied; no more is read."""
    steps = tuple(slice(None, None, max(1, size // _OF_A_DIMENSION)) for size in tensor.shape[: _OF_A_DIMENSION + 1])
    return tensor[steps].clone()


def _are_equal(one: Tensor, two: Tensor) -> bool:
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    return torch.equal(one, two if one.device == two.device else two.to(one.device))


def _varies(values: Tensor) -> bool:
    return bool((values != values.flatten()[0]).any())
