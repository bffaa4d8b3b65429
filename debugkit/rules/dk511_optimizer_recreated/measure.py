"""Recognise optimizers that replace each other, at their first steps and with what was kept of the last ones."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import IterableDataset, Subset, TensorDataset

from debugkit._torch_private import version_of
from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.held_parameters import held_parameters
from debugkit.interventions.program_lines import files_on_the_stack, only_call
from debugkit.probe import Probe
from debugkit.recorders.guard import guarded
from debugkit.recorders.loader_reads import LoaderReads
from debugkit.recorders.optimizer_steps import OptimizerSteps
from debugkit.recorders.patches import Patches
from debugkit.rules.dk511_optimizer_recreated import HalfRestored, ReplacedOptimizers, Replacement
from debugkit.setup import TrainingSetup

_REMEMBERED = 64
_LIVES = 8
"""Optimizers that may still be replaced."""
_COPIED = 2
_LARGEST_COPY = 4096
_COUNTED = 8
"""Parameters whose counters of changes are compared."""
_INDICES = 64


@dataclass
class _Data:
    """The data set of a loader. Two loaders may be made from the same tensors, or from the same part of a set."""

    parts: tuple[Any, ...]
    size: int
    indices: tuple[Any, ...]

    def is_same(self, other: _Data) -> bool:
        return (
            (self.size, self.indices, len(self.parts)) == (other.size, other.indices, len(other.parts))
            and all(one() is not None for one in self.parts)
            and all(one() is two() for one, two in zip(self.parts, other.parts, strict=True))
        )


@dataclass(frozen=True)
class _Made:
    """Where an optimizer was made, and after how many steps of all optimizers."""

    at: SourceLine | None
    after_steps: int


@dataclass(eq=False)
class _Life:
    """The steps of one optimizer from an empty state on."""

    optimizer: weakref.ref[Optimizer]
    kind: str
    parameters: tuple[weakref.ref[Tensor], ...]
    settings: tuple[Any, ...]
    chain: int
    made: _Made | None
    """None if it was made before the loop was watched."""
    steps: int = 0
    last_step: int = 0
    """Its last step, counted over all optimizers."""
    keeps: bool = False
    """Whether its state has tensors that belong to parameters."""
    closure: bool = False
    rate: float | None = None
    epochs: set[int] = field(default_factory=set)
    data: _Data | None = None
    after: tuple[Any, ...] = ()
    """The parameters' counters of changes and addresses after the last step."""
    copies: tuple[Tensor, ...] = ()
    saved: tuple[Tensor, ...] = ()
    """Small parameters when the state was last saved, after `saved_steps`."""
    saved_steps: int = 0


class ReplacedOptimizersProbe(Probe[ReplacedOptimizers]):
    """Observes every optimizer that steps, also those made while the loop runs."""

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._lives: list[_Life] = []
        self._found: list[Replacement] = []
        self._half_restored: list[HalfRestored] = []
        self._loaded: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._made: weakref.WeakKeyDictionary[Optimizer, _Made] = weakref.WeakKeyDictionary()
        self._optimizers = self._chains = 0
        self._steps = 0  # of all optimizers
        self._read: tuple[int, _Data] | None = None
        self._described: tuple[weakref.ref[Any], int, _Data] | None = None
        self._reads = LoaderReads(self._delivered)
        self._patches = Patches()
        self._hooks = OptimizerSteps()

    def __enter__(self) -> Self:
        self._patches = Patches()
        self._patches.around(Optimizer, "__init__", after=self._makes)
        self._patches.around(Optimizer, "state_dict", after=self._saves)
        self._patches.around(nn.Module, "load_state_dict", after=self._loads)
        self._reads.__enter__()
        self._hooks = OptimizerSteps(before=guarded(self._before_step), after=guarded(self._after_step))
        self._hooks.attach()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.remove()
        self._reads.__exit__(None, None, None)
        self._patches.__exit__(None, None, None)

    def loop_ended(self) -> None:
        self._lives = []

    @property
    def observation(self) -> ReplacedOptimizers:
        return ReplacedOptimizers(self._optimizers, tuple(self._found), tuple(self._half_restored))

    def _makes(self, optimizer: Optimizer, *_: Any, **__: Any) -> None:
        self._made[optimizer] = _Made(_constructed_at(optimizer), self._steps)

    def _life_of(self, optimizer: Optimizer) -> _Life | None:
        return next((known for known in self._lives if known.optimizer() is optimizer), None)

    def _saves(self, optimizer: Optimizer, *_: Any, **__: Any) -> None:
        life = self._life_of(optimizer)
        if life is not None and life.keeps:
            life.saved = tuple(one.detach().clone() for one in _small(life.parameters))
            life.saved_steps = life.steps

    def _loads(self, module: nn.Module, *_: Any, **__: Any) -> None:
        self._loaded.add(module)

    def _delivered(self, loader: Any, iteration: int, _batch: Any) -> None:
        if self._described is None or self._described[0]() is not loader or self._described[1] != iteration:
            self._described = weakref.ref(loader), iteration, _data_of(loader)
        self._read = iteration, self._described[2]

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        life = self._life_of(optimizer)
        if life is None or (life.keeps and not optimizer.state):
            life = self._begin(optimizer, life)
        life.closure |= any(map(callable, (*args[1:], kwargs.get("closure"))))
        if self._read is not None:
            life.epochs.add(self._read[0])
            life.data = self._read[1]

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        life = self._life_of(optimizer)
        if life is None:
            return
        self._steps += 1
        life.steps, life.last_step = life.steps + 1, self._steps
        life.rate = _rate(optimizer)
        if not life.keeps:
            life.keeps = _keeps_tensors(optimizer)
        life.after = _counters(life.parameters)
        small = list(_small(life.parameters))
        if [one.shape for one in small] != [copy.shape for copy in life.copies]:  # another one is trained now
            life.copies = tuple(one.detach().clone() for one in small)
        else:
            with torch.no_grad():
                for copy, one in zip(life.copies, small, strict=True):
                    copy.copy_(one)

    def _begin(self, optimizer: Optimizer, emptied: _Life | None) -> _Life:
        parameters = tuple(held_parameters(optimizer))
        before = emptied or self._replaced_by(optimizer, parameters)
        if emptied is None and not optimizer.state and len(self._half_restored) < _REMEMBERED:
            self._half_restored += self._without_its_state(optimizer, parameters)
        life = _Life(
            weakref.ref(optimizer),
            type(optimizer).__name__,
            before.parameters if before is not None else tuple(weakref.ref(p) for p in parameters),
            _settings(optimizer),
            self._chains if before is None else before.chain,
            self._made.get(optimizer),
        )
        self._optimizers += emptied is None
        if before is None:
            self._chains += 1
        elif before.keeps and not before.closure and not optimizer.state and len(self._found) < _REMEMBERED:
            self._found.append(self._replacement(before, life, optimizer, is_emptied=emptied is not None))
        if before is not None:
            before.copies = ()
        kept = [known for known in self._lives if known is not emptied]
        self._lives = [*kept[1 - _LIVES :], life]
        return life

    def _replaced_by(self, optimizer: Optimizer, parameters: tuple[Tensor, ...]) -> _Life | None:
        """The last optimizer of the same class over the same parameters."""
        for life in reversed(self._lives):
            if (
                life.kind == type(optimizer).__name__
                and len(life.parameters) == len(parameters)
                and all(known() is one for known, one in zip(life.parameters, parameters, strict=True))
            ):
                return life
        return None

    def _without_its_state(self, optimizer: Optimizer, parameters: tuple[Tensor, ...]) -> Iterator[HalfRestored]:
        """The saved optimizer of the same class whose parameters were loaded into those of `optimizer`."""
        first = next((p for p in parameters if p.requires_grad), None)
        if not any(first is own for module in self._loaded for own in module.parameters()):
            return
        now = tuple(_small(tuple(weakref.ref(p) for p in parameters)))
        for life in reversed(self._lives):
            fits = life.kind == type(optimizer).__name__ and len(life.parameters) == len(parameters)
            if fits and life.saved and len(life.saved) == len(now) and all(map(_is_equal, life.saved, now)):
                data = None if self._read is None else self._read[1]
                yield HalfRestored(
                    optimizer=life.kind,
                    steps=life.saved_steps,
                    same_settings=life.settings == _settings(optimizer),
                    other_data=life.data is not None and data is not None and not life.data.is_same(data),
                    at=self._line_of(optimizer),
                )
                return

    def _replacement(self, before: _Life, life: _Life, optimizer: Optimizer, *, is_emptied: bool) -> Replacement:
        rate = _rate(optimizer)
        files = files_on_the_stack()
        return Replacement(
            chain=life.chain,
            optimizer=life.kind,
            steps=before.steps,
            emptied=is_emptied,
            same_settings=is_emptied or before.settings == life.settings,
            unchanged=before.after == _counters(life.parameters)
            and all(map(torch.equal, before.copies, _small(life.parameters))),
            rate_ratio=rate / before.rate if rate is not None and before.rate else None,
            epochs=len(before.epochs),
            same_data=before.data is not None and self._read is not None and before.data.is_same(self._read[1]),
            same_line=not is_emptied and _at_one_line(before, life),
            at=only_call("clear", files) if is_emptied else self._line_of(optimizer),
        )

    def _line_of(self, optimizer: Optimizer) -> SourceLine | None:
        made = self._made.get(optimizer)
        return None if made is None else made.at


def _at_one_line(before: _Life, life: _Life) -> bool:
    """Whether one line made both, the second after the last step of the first, as in a loop over the epochs."""
    if before.made is None or life.made is None or before.made.at is None:
        return False
    return before.made.at == life.made.at and life.made.after_steps >= before.last_step


def _constructed_at(optimizer: Optimizer) -> SourceLine | None:
    """The line outside of the constructors of the optimizer."""
    frame: FrameType | None = sys._getframe(1)
    outermost = frame
    for _ in range(12):
        if frame is None:
            break
        if frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is optimizer:
            outermost = frame.f_back
        frame = frame.f_back
    return user_line(outermost)


def _settings(optimizer: Optimizer) -> tuple[Any, ...]:
    """The options of each group, without the parameters, and which of these require gradients."""
    options = [
        tuple(sorted((name, _plain(value)) for name, value in group.items() if name != "params"))
        for group in optimizer.param_groups
    ]
    return tuple(options), tuple(p.requires_grad for group in optimizer.param_groups for p in group["params"])


def _plain(value: Any) -> str:
    return type(value).__name__ if isinstance(value, Tensor) else repr(value)


def _rate(optimizer: Optimizer) -> float | None:
    rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
    return float(rate) if isinstance(rate, int | float) else None


def _keeps_tensors(optimizer: Optimizer) -> bool:
    for state in optimizer.state.values():
        values = state.values() if isinstance(state, dict) else ()
        if any(isinstance(value, Tensor) and value.ndim > 0 for value in values):
            return True
    return False


def _is_equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.device == other.device and torch.equal(one, other.detach())


def _counters(parameters: Iterable[weakref.ref[Tensor]]) -> tuple[Any, ...]:
    counted = []
    for reference in parameters:
        parameter = reference()
        counted.append(None if parameter is None else (version_of(parameter), parameter.data_ptr()))
        if len(counted) == _COUNTED:
            break
    return tuple(counted)


def _small(parameters: tuple[weakref.ref[Tensor], ...]) -> Iterator[Tensor]:
    """The first few small parameters that are trained."""
    found = 0
    for reference in parameters:
        parameter = reference()
        if parameter is not None and parameter.requires_grad and parameter.numel() <= _LARGEST_COPY:
            yield parameter
            found += 1
            if found == _COPIED:
                return


def _data_of(loader: Any) -> _Data:
    data = getattr(loader, "dataset", None)
    indices: tuple[Any, ...] = ()
    size = len(data) if isinstance(data, Sized) and not isinstance(data, IterableDataset) else -1
    while isinstance(data, Subset):
        indices += tuple(map(str, data.indices[:_INDICES]))
        data = data.dataset
    parts = data.tensors if isinstance(data, TensorDataset) else (data,)
    return _Data(tuple(map(_reference, parts)), size, indices)


def _reference(value: Any) -> Any:
    try:
        return weakref.ref(value)
    except TypeError:  # a list: its address says enough, as its size is compared as well
        address = id(value)
        return lambda: address
