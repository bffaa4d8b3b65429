"""Follows detached values to the scalars that are added to a loss, and these sums to `backward()`.

A value is followed from the operation that removed its graph. While it is only selected, reduced or multiplied by
numbers, it counts as a term that was detached on purpose.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from debugkit._torch_private import (
    SET_GRAD_ENABLED,
    in_backward,
    sequence_number,
    without_torch_function,
)
from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.held_parameters import held_parameters
from debugkit.measurements.autograd_graph.measure import is_custom, node_metadata
from debugkit.recorders.by_tensor import ByTensor
from debugkit.recorders.function_calls import FunctionObserver, property_read_by
from debugkit.recorders.function_probe import FunctionProbe
from debugkit.rules.dk121_loss_term_without_graph import LossTerms, Term
from debugkit.setup import TrainingSetup

_DETACHING = frozenset({"detach", "detach_", "data", "tensor", "new_tensor", "grad"})
"""`grad` is `torch.autograd.grad`; `tensor` copies values."""
_SHAPE_ONLY = frozenset({"new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided", "size", "dim", "numel"})
_CONVERTS = frozenset(
    {"float", "double", "half", "bfloat16", "to", "type", "type_as", "cpu", "cuda", "clone", "contiguous"}
)
_RESHAPES = frozenset(
    {"view", "reshape", "flatten", "squeeze", "unsqueeze", "permute", "transpose", "t", "T", "mT", "expand", "repeat"}
)
_SELECTS = frozenset(
    {"__getitem__", "select", "index_select", "masked_select", "gather", "chunk", "split", "unbind", "narrow", "max"}
    | {"min", "amax", "amin", "topk", "sort", "median", "take_along_dim"}
)
_REDUCES = frozenset({"sum", "mean", "nansum", "nanmean"})
_NEGATES = frozenset({"neg", "__neg__", "negative"})
_ADDS = frozenset(
    {"add", "add_", "__add__", "__radd__", "__iadd__", "sub", "sub_", "__sub__", "__rsub__", "rsub", "__isub__"}
    | {"subtract", "stack", "cat", "hstack", "concat"}
)
_LISTS = frozenset({"stack", "cat", "hstack", "concat"})
_MULTIPLIES = frozenset({"mul", "mul_", "__mul__", "__rmul__", "__imul__", "multiply", "dot", "matmul", "__matmul__"})
_DIVIDES = frozenset({"div", "div_", "__truediv__", "__itruediv__", "divide", "true_divide"})
_OF_ONE_TENSOR = _CONVERTS | _RESHAPES | _SELECTS | _REDUCES | _NEGATES
_LINEAR = _CONVERTS | _RESHAPES | _REDUCES | _NEGATES | _MULTIPLIES | _DIVIDES
_MOST_NODES = 64
_GRADIENT_MODE = "no_grad"
_MARK, _NUMBER = "debugkit.dk121", "debugkit.dk121.number"
_numbers = itertools.count()


class LossTermsProbe(FunctionProbe[LossTerms, "_Calls"]):
    """Observes each step; the observation describes the last one. Of tensors, it keeps scalars without a graph."""

    watch_steps = 3

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup, _Calls(setup))
        self._last = LossTerms(())

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        with without_torch_function():
            for loss in losses:
                self.calls.ends_in(loss)

    def end_step(self, _step: int, /) -> None:
        terms = {(term.operation, term.at): term for term in self.calls.terms()}
        self._last = LossTerms(tuple(terms.values()))
        self.calls.reset()

    def observed(self) -> LossTerms:
        return self._last


@dataclass(frozen=True, slots=True)
class _Cut:
    """One removed graph. `origin` is the number of the node from whose result alone the detached tensor was computed.

    `behind` are the numbers of the nodes between the tensor and the last parameters before it.
    """

    origin: int
    behind: frozenset[int]
    module: str | None
    operation: str
    at: SourceLine | None


@dataclass(frozen=True, slots=True)
class _Detached:
    """What is known of a value without a graph. `plain`: nothing was computed from it since it was detached."""

    cuts: tuple[_Cut, ...]
    plain: bool


@dataclass(frozen=True, slots=True)
class _Added:
    """A scalar without a graph in a sum. `place` is its index in a list of terms that is not yet summed."""

    cuts: tuple[_Cut, ...]
    value: Tensor
    at: SourceLine | None
    place: int | None = None


class _Calls(FunctionObserver):
    """It refers to tensors weakly."""

    def __init__(self, setup: TrainingSetup) -> None:
        self._setup = setup
        self._no_grad_at: SourceLine | None = None
        self.reset()

    def reset(self) -> None:
        self._buffers = set(map(id, self._setup.model.buffers()))
        self._held = set(map(id, held_parameters(*self._setup.optimizers)))
        self._detached = ByTensor[_Detached]()  # values without a graph → _Detached
        self._fixed = ByTensor[bool]()  # values computed from frozen parameters or buffers
        self._masks = ByTensor[bool]()  # numbers converted from bool or integers
        self._sums = ByTensor[tuple[_Added, ...]]()  # scalars with a graph → their terms without one
        self._constants: set[int] = set()  # origins whose detached values are used together with a graph
        self._found: list[_Added] = []

    def ends_in(self, loss: Tensor) -> None:
        """`backward()` is called on this loss."""
        if loss.requires_grad:
            self._found += self._sums.get(loss) or ()

    def terms(self) -> Iterator[Term]:
        for added in self._found:
            cut = next((cut for cut in added.cuts if cut.origin not in self._constants), None)
            if cut is not None:
                first = next(one for one in added.cuts if one.at == cut.at)
                yield Term(cut.operation, cut.at, added.at, abs(float(added.value)), first.module)

    def name_of(self, func: Callable[..., Any]) -> str | None:
        return _GRADIENT_MODE if func is SET_GRAD_ENABLED else _name(func)

    def before(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], /) -> _Call | None:
        if name == _GRADIENT_MODE:
            if args[0] or torch.is_grad_enabled():
                self._no_grad_at = None if args[0] else user_line()
            return None
        return None if in_backward() else self._begins(name, args, kwargs)

    def after(
        self, name: str, args: Sequence[Any], _kwargs: dict[str, Any], output: Any, begun: _Call | None, /
    ) -> None:
        if begun is not None:
            self._ended(begun, args[0] if name == "__setitem__" else output)

    def _begins(self, name: str, args: Any, kwargs: Any) -> _Call | None:
        """What must be read before the call, because it may change a tensor in place; None if it is of no interest."""
        given = list(_tensors((*args, *kwargs.values())))
        with_graph = [tensor for tensor in given if tensor.requires_grad]
        detached = [(tensor, self._detached[tensor]) for tensor in given if tensor in self._detached]
        detached = [(tensor, known) for tensor, known in detached if not tensor.requires_grad]
        sums = [tensor for tensor in with_graph if tensor in self._sums]
        cuts: list[_Cut] = []
        if name in _DETACHING:
            wide = [tensor for tensor in with_graph if tensor.numel() > 1 or name == "grad"]
            if name != "grad" or not kwargs.get("create_graph"):
                cuts = self._cuts(wide[:1], name, user_line())
        elif not torch.is_grad_enabled():
            at = self._no_grad_at or user_line()
            operation = "inference_mode" if torch.is_inference_mode_enabled() else "no_grad"
            cuts = self._cuts([tensor for tensor in with_graph if tensor.grad_fn is not None], operation, at)
        fixed = any(map(self._is_fixed, given))
        if not (cuts or detached or sums or fixed or _may_be_a_mask(name, given)):
            return None
        added = tuple(one for tensor in sums for one in self._sums[tensor])
        return _Call(name, args, kwargs, given, with_graph, detached, added, cuts, fixed, torch.is_grad_enabled())

    def _is_fixed(self, tensor: Tensor) -> bool:
        if tensor.requires_grad:
            return False
        return isinstance(tensor, nn.Parameter) or id(tensor) in self._buffers or tensor in self._fixed

    def _cuts(self, tensors: Sequence[Tensor], operation: str, at: SourceLine | None) -> list[_Cut]:
        """The graphs of parameters that an operation removes from these tensors."""
        found = map(self._graph_of, tensors)
        return [_Cut(*known, operation, at) for known in found if known is not None]

    def _graph_of(self, tensor: Tensor) -> tuple[int, frozenset[int], str | None] | None:
        """The first fields of a `_Cut`. None if the graph holds no parameter: that of an input with a gradient."""
        node = tensor.grad_fn
        if node is None:
            return (-id(tensor), frozenset(), self._module_of(tensor)) if self._is_parameter(tensor) else None
        marks = node_metadata(node)
        if _MARK not in marks:
            nearest = self._nearest_parameter(node)
            behind = frozenset(map(_number, _nodes_before_parameters(node)))
            marks[_MARK] = None if nearest is None else (_number(_origin(node)), behind, self._module_of(nearest[0]))
        return cast("tuple[int, frozenset[int], str | None] | None", marks[_MARK])

    def _nearest_parameter(self, node: Node) -> tuple[Tensor | None] | None:
        """The nearest parameter behind a node, among few nodes. None if the whole graph has none."""
        waiting, known = [node], {node}
        for other in waiting:
            leaf = getattr(other, "variable", None)
            if leaf is not None and self._is_parameter(leaf):
                return (leaf,)
            if len(known) > _MOST_NODES or is_custom(other):
                return (None,)
            following = [behind for behind, _ in other.next_functions if behind is not None and behind not in known]
            waiting += following
            known.update(following)
        return None

    def _is_parameter(self, leaf: Tensor) -> bool:
        return isinstance(leaf, nn.Parameter) or id(leaf) in self._held

    def _module_of(self, parameter: Tensor | None) -> str | None:
        path = self._setup.parameter_paths.get(id(parameter))
        return None if path is None else path.rpartition(".")[0]

    @torch.no_grad()
    def _ended(self, call: _Call, output: Any) -> None:
        made = [tensor for tensor in _tensors((output,)) if tensor.is_floating_point()]
        if any(tensor.requires_grad for tensor in made):
            self._continues_the_graph(call, output)
            return
        cuts = tuple(dict.fromkeys([*(cut for _, known in call.detached for cut in known.cuts), *call.cuts]))
        starts_here = call.name in _DETACHING or not call.grad_enabled
        for tensor in made:
            self._detached.discard(tensor)
            if id(tensor) in self._buffers:
                continue
            if call.fixed and (call.grad_enabled or not call.cuts):
                self._fixed[tensor] = True
            elif cuts and not (starts_here and tensor.numel() == 1):
                self._detached[tensor] = _Detached(cuts, starts_here or self._is_plain(call))
            elif _may_be_a_mask(call.name, call.given):
                self._masks[tensor] = True

    def _continues_the_graph(self, call: _Call, output: Any) -> None:
        """The result has a graph. Detached operands are terms of a sum, or constants."""
        if isinstance(output, Tensor):
            self._sums.discard(output)
            self._detached.discard(output)
            if call.name in _ADDS and all(tensor.numel() == 1 for tensor in call.given):
                self._sums[output] = call.added + self._terms_added(call)
                return
            if call.name in _LINEAR and call.added and len(call.with_graph) == 1 and _divides_it(call):
                self._use(cut for _, known in call.detached for cut in known.cuts)
                self._sums[output] = tuple(_scaled(one, call, output) for one in call.added)
                return
        used = [cut for _, known in call.detached for cut in known.cuts]
        self._use([*used, *(cut for one in call.added for cut in one.cuts)])
        if call.name not in _ADDS:  # in `z + (e - z).detach()`, neither `e` nor `z` is a constant
            self._constants.update(number for cut in used for number in cut.behind)

    def _terms_added(self, call: _Call) -> tuple[_Added, ...]:
        at, scale = user_line(), call.kwargs.get("alpha", 1)
        return tuple(
            _Added(known.cuts, tensor.detach().reshape(()) * scale, at, _place(call, tensor))
            for tensor, known in call.detached
            if not known.plain
        )

    def _use(self, cuts: Iterable[_Cut]) -> None:
        self._constants.update(cut.origin for cut in cuts)

    def _is_plain(self, call: _Call) -> bool:
        """Whether the results are still the detached values: selected, reduced, added up or multiplied by numbers."""
        if not all(known.plain for _, known in call.detached):
            return False
        if call.name in _OF_ONE_TENSOR:
            return True
        wide = [tensor for tensor in call.given if tensor.numel() > 1 and tensor.is_floating_point()]
        values = [tensor for tensor, _ in call.detached if tensor.numel() > 1]
        if any(tensor not in self._masks and not _among(tensor, values) for tensor in wide):
            return False
        return call.name in _ADDS or (call.name in _MULTIPLIES | _DIVIDES and len(values) < 2)


@dataclass(slots=True)
class _Call:
    """One call of a torch function, as it was before the call."""

    name: str
    args: Any
    kwargs: Any
    given: list[Tensor]
    with_graph: list[Tensor]
    detached: list[tuple[Tensor, _Detached]]
    added: tuple[_Added, ...]
    """The terms of those operands that are sums."""
    cuts: list[_Cut]
    fixed: bool
    """Whether an operand depends on a frozen parameter or on a buffer."""
    grad_enabled: bool


def _name(func: Callable[..., Any]) -> str | None:
    """The usual name of a function or property; None if no value passes through it."""
    read = property_read_by(func)
    if read is not None:
        return read if read in ("data", "T", "mT") else None
    name: str = getattr(func, "__name__", "")
    if name.endswith("_like") or name in _SHAPE_ONLY or name.startswith("is_") or name == "backward":
        return None
    return name


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


def _may_be_a_mask(name: str, given: Sequence[Tensor]) -> bool:
    return name in _CONVERTS and bool(given) and not given[0].is_floating_point()


def _among(tensor: Tensor, others: Iterable[Tensor]) -> bool:
    return any(tensor is other for other in others)


def _number(node: Node) -> int:
    marks = node_metadata(node)
    if _NUMBER not in marks:
        marks[_NUMBER] = next(_numbers)
    return cast("int", marks[_NUMBER])


def _nodes_before_parameters(node: Node) -> list[Node]:
    """The nodes that a gradient passes before it reaches parameters, among few nodes."""
    found, known = [node], {node}
    for node in found:
        following = [behind for behind, _ in node.next_functions if behind is not None]
        if len(known) < _MOST_NODES and not any(hasattr(behind, "variable") for behind in following):
            found += [behind for behind in dict.fromkeys(following) if behind not in known]
            known.update(following)
    return found


def _origin(node: Node) -> Node:
    """The node from whose result alone a node's result was computed: the logits, for a softmax of them."""
    found, waiting = node, {node}
    for _ in range(_MOST_NODES):
        if len(waiting) == 1:
            (found,) = waiting
        last = max(waiting, key=sequence_number)
        following = {behind for behind, _ in last.next_functions if behind is not None}
        if not following or any(hasattr(behind, "variable") for behind in following):
            break
        waiting = (waiting - {last}) | following
    return found


def _place(call: _Call, tensor: Tensor) -> int | None:
    if call.name not in _LISTS:
        return None
    return next((place for place, other in enumerate(call.given) if other is tensor), None)


def _divides_it(call: _Call) -> bool:
    """Whether a division, if it is one, has the sum as its numerator."""
    return call.name not in _DIVIDES or _among(call.args[0], call.with_graph)


def _scaled(one: _Added, call: _Call, output: Tensor) -> _Added:
    """A term after its sum was multiplied, or after its list was summed."""
    value, place = one.value, one.place
    if call.name in _MULTIPLIES:
        factor = next((each for each in call.args if not _among(each, call.with_graph)), 1)
        if isinstance(factor, Tensor) and factor.numel() > 1:
            factor = 1 if place is None else factor.detach().flatten()[place]
        value = value * (factor.detach().reshape(()) if isinstance(factor, Tensor) else factor)
    return _Added(one.cuts, value, one.at, place if output.numel() > 1 else None)
