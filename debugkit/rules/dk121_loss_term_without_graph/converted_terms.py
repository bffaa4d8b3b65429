"""Finds terms that were converted to numbers before they were added to the loss, and the parameters only they reach.

In the first steps, two lists of numbers are kept: those that tensors with a graph were converted to, and those that
were added to a loss. A term was converted if it is the same multiple of a converted value in each of these steps. Then
only the gradients of the parameters behind such a value are observed.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.autograd.graph import Node

from debugkit._torch_private import in_backward, is_compiled, without_torch_function
from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import user_line
from debugkit.held_parameters import held_parameters
from debugkit.measurements.autograd_graph.measure import node_metadata, walk
from debugkit.probe import SAMPLED_EVERY, THOROUGH_STEPS
from debugkit.recorders.function_calls import FunctionObserver, detach, property_read_by
from debugkit.recorders.function_probe import FunctionProbe
from debugkit.rules.dk121_loss_term_without_graph import FEWEST_STEPS, ConvertedTerm, ConvertedTerms
from debugkit.setup import TrainingSetup

_CONVERSIONS = {"item": "item", "__float__": "float", "tolist": "tolist", "detach": "detach", "tensor": "tensor"}
"""What a program calls, and by the name of the function that is called. `tensor` copies values."""
_DATA = "data"
_ADDITIONS = frozenset(
    {"add", "add_", "__add__", "__radd__", "__iadd__", "sub", "sub_", "__sub__", "__rsub__", "rsub", "__isub__"}
)
_MOST_IN_A_STEP = 32
_MOST_OF_A_LINE = 8
_MOST_NODES = 256
_EXACT = 1e-6
_VARIES = 1e-4
"""A converted value that changes less from step to step may be the same multiple of a constant by chance."""
_MARK = "debugkit.dk121.added"


@dataclass(frozen=True, slots=True)
class _Place:
    """A call in a step: its line, its name, and how many calls of this name at this line came before."""

    at: SourceLine | None
    operation: str
    number: int


_Numbers = dict[_Place, Any]
"""Numbers, and tensors of one element that are read after the first steps, if at all."""


class ConvertedTermsProbe(FunctionProbe[ConvertedTerms, "_Conversions"]):
    """Observes functions in the first three steps, and then `.grad` of the parameters that may have none."""

    watch_first = 2 * FEWEST_STEPS
    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        if is_compiled(setup.model):
            raise NotExamined("The model is compiled, so its operations cannot be recorded: use debugkit.check().")
        super().__init__(setup, _Conversions())
        self._steps: list[tuple[_Numbers, _Numbers]] | None = []
        """Of each step, the converted numbers, and those in the loss. None after the last of these steps."""
        self._terms: list[_Term] = []
        self._idle: Counter[int] = Counter()
        """id() of a parameter → the steps of its optimizer in which it had no gradient."""

    def __enter__(self) -> Self:
        return super().__enter__() if self._steps is not None else self

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        if self._steps is not None:
            with without_torch_function():
                self.calls.ends_in(losses)
        elif self.calls.without_gradient:  # a gradient may be applied and removed during backward
            self.calls.forget(walk(losses).leaves)

    def after_backward(self) -> None:
        self.calls.forget_those_with_a_gradient()

    def before_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        self.calls.forget_those_with_a_gradient()
        if self.calls.without_gradient:
            self._idle.update(self.calls.without_gradient.keys() & set(map(id, held_parameters(optimizer))))

    def end_step(self, _step: int, /) -> None:
        if self._steps is None:
            return
        self._steps.append(self.calls.end_step())
        if len(self._steps) == THOROUGH_STEPS:
            self._terms = list(self.calls.terms(self._steps))
            self._steps = None
            candidates = {key for term in self._terms for key in term.behind}
            self.calls.forget(self.calls.without_gradient.keys() - candidates)
            if self._mode is not None:
                detach(self.calls, self._mode)
                self._mode = None

    def observed(self) -> ConvertedTerms:
        found = [self._converted(term) for term in self._terms]
        return ConvertedTerms(tuple(term for term in found if term.parameters or term.outside))

    def _converted(self, term: _Term) -> ConvertedTerm:
        known = self.calls.without_gradient
        never = {key: known[key]() for key in term.behind if key in known and self._idle[key] >= FEWEST_STEPS}
        parameters = {key: leaf for key, leaf in never.items() if leaf is not None}
        paths = self.setup.parameter_paths
        return ConvertedTerm(
            operation=term.operation,
            at=term.at,
            added_at=term.added_at,
            factor=term.factor,
            parameters=tuple(path for path in paths.values() if path in {paths.get(key) for key in parameters}),
            outside=sum(key not in paths for key in parameters),
            numel=sum(parameter.numel() for parameter in parameters.values()),
            steps=min((self._idle[key] for key in parameters), default=0),
        )


@dataclass(frozen=True, slots=True)
class _Term:
    """A number in the loss that is `factor` times a converted value, or times the sum of those of one line."""

    operation: str
    at: SourceLine | None
    added_at: SourceLine | None
    factor: float
    behind: frozenset[int]
    """id() of the leaves of the value's graph."""


class _Conversions(FunctionObserver):
    """It refers to parameters weakly, and to no graph."""

    def __init__(self) -> None:
        self.without_gradient: dict[int, weakref.ref[Tensor]] = {}  # by id(), of all leaves behind converted values
        self._behind: dict[_Place, frozenset[int]] = {}
        self._trained: set[int] = set()
        self._reset()

    def _reset(self) -> None:
        self._converted: _Numbers = {}
        self._added: _Numbers = {}
        self._before_backward: _Numbers = {}
        self._in_the_loss: _Numbers = {}
        self._counts: Counter[tuple[SourceLine | None, str]] = Counter()

    def name_of(self, func: Any) -> str | None:
        if property_read_by(func) is not None:
            return _DATA if property_read_by(func) == _DATA else None
        name: str = getattr(func, "__name__", "")
        return name if name in _CONVERSIONS or name in _ADDITIONS else None

    def after(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], output: Any, _begun: Any, /) -> None:
        given = args[0] if args else kwargs.get("input")
        if not isinstance(given, Tensor) or given.numel() > _MOST_OF_A_LINE or in_backward():
            return
        if name in _ADDITIONS:
            self._adds(args, kwargs, output)
        elif given.requires_grad and torch.is_grad_enabled() and given.is_floating_point():
            self._converts(_CONVERSIONS.get(name, name), given, output)

    def _converts(self, operation: str, given: Tensor, output: Any) -> None:
        values = output.detach().reshape(-1) if isinstance(output, Tensor) else _flat(output)
        if given.numel() > 1 and operation != "tolist":
            return
        for value in values:
            place = self._place(operation)
            if place is None:
                return
            if place not in self._behind:
                self._behind[place] = self._leaves_of(given)
            self._converted[place] = value.clone() if isinstance(value, Tensor) else value

    def _leaves_of(self, given: Tensor) -> frozenset[int]:
        leaves = [getattr(node, "variable", None) for node in walk([given]).nodes]
        found = {id(leaf): leaf for leaf in leaves if leaf is not None}
        for key, leaf in found.items():
            if key not in self._trained:
                self.without_gradient[key] = weakref.ref(leaf)
        return frozenset(found)

    def _adds(self, args: Sequence[Any], kwargs: dict[str, Any], output: Any) -> None:
        if not isinstance(output, Tensor) or output.numel() != 1 or output.grad_fn is None:
            return
        operands = [*args[:2], *(kwargs[key] for key in ("input", "other") if key in kwargs)]
        numbers = [one for one in operands if not (isinstance(one, Tensor) and one.requires_grad)]
        if len(operands) != 2 or len(numbers) != 1:
            return
        number = numbers[0]
        if isinstance(number, Tensor):
            if not number.is_floating_point():
                return
            number = number.detach().reshape(()).clone()
        elif not isinstance(number, float) and not hasattr(number, "__float__"):
            return
        place = self._place("add")
        if place is not None:
            self._added[place] = number
            node_metadata(output.grad_fn)[_MARK] = place

    def _place(self, operation: str) -> _Place | None:
        """The place of this call; None if the step has had many calls."""
        at = user_line()
        number = self._counts[at, operation]
        if number >= _MOST_OF_A_LINE or len(self._counts) >= _MOST_IN_A_STEP:
            return None
        self._counts[at, operation] += 1
        return _Place(at, operation, number)

    def ends_in(self, losses: Iterable[Tensor]) -> None:
        """`backward()` is called on these losses."""
        self._before_backward.update(self._converted)
        if self._added:
            places = {node_metadata(node).get(_MARK) for loss in losses for node in _nodes_of_sums(loss)}
            self._in_the_loss |= {place: value for place, value in self._added.items() if place in places}

    def end_step(self) -> tuple[_Numbers, _Numbers]:
        step = self._before_backward, self._in_the_loss
        self._reset()
        return step

    def forget(self, leaves: Iterable[int]) -> None:
        """These are trained, or of no interest."""
        for key in leaves:
            self._trained.add(key)
            self.without_gradient.pop(key, None)

    def forget_those_with_a_gradient(self) -> None:
        known = {key: reference() for key, reference in self.without_gradient.items()}
        self.forget([key for key, leaf in known.items() if leaf is None or leaf.grad is not None])

    def terms(self, steps: Sequence[tuple[_Numbers, _Numbers]]) -> Iterator[_Term]:
        """The terms of these steps, those of one line and one conversion once."""
        converted, added = (_in_all([step[kind] for step in steps]) for kind in (0, 1))
        candidates = {place: values for place, values in converted.items() if self._interests(place)}
        if not candidates or not added:
            return
        read = {place: list(map(float, values)) for place, values in added.items()}
        lines: dict[tuple[SourceLine | None, str], list[_Place]] = {}
        for place in converted:
            lines.setdefault((place.at, place.operation), []).append(place)
        found: dict[tuple[SourceLine | None, str], _Term] = {}
        for line, places in lines.items():
            if not any(place in candidates for place in places):
                continue
            values = {place: list(map(float, converted[place])) for place in places}
            sets = [(place,) for place in places if place in candidates] + ([tuple(places)] if len(places) > 1 else [])
            for chosen in sets:
                summed = [sum(each) for each in zip(*(values[place] for place in chosen), strict=True)]
                behind = frozenset().union(*(self._behind[place] for place in chosen))
                for where, numbers in read.items():
                    factor = _factor(numbers, summed)
                    if factor is None:
                        continue
                    before = found.get(line)
                    behind = behind | before.behind if before else behind
                    found[line] = _Term(line[1], line[0], where.at, factor, behind)
        yield from found.values()

    def _interests(self, place: _Place) -> bool:
        return not self._behind.get(place, frozenset()).isdisjoint(self.without_gradient)


def _flat(output: Any) -> list[Any]:
    if isinstance(output, list):
        return [value for one in output for value in _flat(one)]
    return [output]


def _nodes_of_sums(loss: Tensor) -> Iterator[Node]:
    """The nodes that are nearest to a loss."""
    waiting = [loss.grad_fn] if loss.grad_fn is not None else []
    known = set(waiting)
    for node in waiting:
        yield node
        if len(waiting) < _MOST_NODES:
            following = {behind for behind, _ in node.next_functions if behind is not None} - known
            waiting += following
            known |= following


def _in_all(steps: Sequence[_Numbers]) -> dict[_Place, list[Any]]:
    return {place: [step[place] for step in steps] for place in steps[0] if all(place in step for step in steps)}


def _factor(numbers: Sequence[float], values: Sequence[float]) -> float | None:
    """By what all values must be multiplied to give the numbers; None if no factor fits, or it may fit by chance."""
    if not all(map(math.isfinite, (*numbers, *values))) or 0 in (*numbers, *values):
        return None
    size = max(map(abs, values))
    if max(values) - min(values) < _VARIES * size:
        return None
    factors = [number / value for number, value in zip(numbers, values, strict=True)]
    fits = max(factors) - min(factors) <= _EXACT * max(map(abs, factors))
    return factors[0] if fits else None
