"""Keep a weak reference to the graph of each loss and of each output of the model; count which live on in later steps.

The reference is to the graph node and not to the tensor: `total = total + loss` releases the tensor of the loss but
keeps its graph.
"""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from debugkit._torch_private import in_backward, is_compiled, sequence_number
from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.held_parameters import held_parameters
from debugkit.measurements.autograd_graph.measure import node_metadata, walk
from debugkit.probe import SAMPLED_EVERY, Probe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.recorders.patches import Patches
from debugkit.rules.dk601_retained_graph import Holder, RetainedGraphs
from debugkit.rules.dk601_retained_graph.holder_names import find_holder
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_REMEMBERED = 64
_MOST_FOLLOWED = 4096
_WALKED = 12  # steps whose whole graph is followed
_MOST_PARTS = 2000  # nodes of one step
_SUSPICIOUS = 5  # with this many graphs alive, the holder is searched for


class _Token:
    """Stored in the metadata of a graph node, so that it is freed together with the node."""

    __slots__ = ("__weakref__", "number")

    def __init__(self, number: int) -> None:
        self.number = number  # the node's sequence number, which identifies it in a walk through a graph


_Kind = Literal["loss", "output", "part"]
_Marks = tuple[weakref.ref[_Token], ...]
"""The marked nodes of one graph."""


class _Graphs:
    """The graphs that end in one kind of tensor: those of this step, and those of earlier ones that are alive.

    A graph is alive while one of its marked nodes is.
    """

    def __init__(self, kind: str) -> None:
        self._key = f"debugkit.retained_graphs.{kind}"
        self._alive: dict[int, deque[int]] = {}  # by the optimizer that stepped
        self._now: list[_Marks] = []
        self._past: deque[_Marks] = deque(maxlen=_MOST_FOLLOWED)

    def mark(self, tensor: Tensor) -> None:
        """Follow the node that made the tensor."""
        if tensor.grad_fn is not None:
            self._mark([tensor.grad_fn])

    def mark_parts(self, loss: Tensor) -> None:
        """Follow all nodes behind a loss. A node that is a part of several graphs belongs to the last one.

        The nodes of parameters, which may be held on purpose, share one sequence number and count once.
        """
        self._mark(list(walk([loss], stop_at_zero_gradient=False).nodes)[:_MOST_PARTS])

    def _mark(self, nodes: Iterable[Node]) -> None:
        marks = []
        for node in nodes:
            token = _Token(sequence_number(node))
            node_metadata(node)[self._key] = token
            marks.append(weakref.ref(token))
        self._now.append(tuple(marks))

    @property
    def alive(self) -> tuple[int, ...]:
        """How many earlier graphs were alive after the steps of the optimizer that stepped most."""
        return max(map(tuple, self._alive.values()), key=len, default=())

    def end_step(self, optimizer: int) -> set[int]:
        """The last marked node of each earlier graph that is alive after a step of this optimizer."""
        numbered = [(marks, _last(marks)) for marks in self._past]
        alive = {number for _, number in numbered if number is not None}
        self._past = deque((marks for marks, number in numbered if number is not None), maxlen=_MOST_FOLLOWED)
        self._alive.setdefault(optimizer, deque(maxlen=_REMEMBERED)).append(len(alive))
        if len(self._alive) > _REMEMBERED:
            del self._alive[next(iter(self._alive))]
        self._past.extend(self._now)
        self._now.clear()
        return alive


def _last(marks: _Marks) -> int | None:
    """The sequence number of the last node that is alive."""
    return max((token.number for reference in marks if (token := reference()) is not None), default=None)


class RetainedGraphsProbe(Probe[RetainedGraphs]):
    """Observes the last 64 steps. Holds no tensor and no graph."""

    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._losses, self._outputs, self._parts = _Graphs("losses"), _Graphs("outputs"), _Graphs("parts")
        self._kinds: dict[_Kind, _Graphs] = {"loss": self._losses, "output": self._outputs, "part": self._parts}
        self._most: _Kind = "loss"
        self._walked = 0
        self._holders: dict[_Kind, Holder | None] = {}
        self._stepped = 0  # id() of the optimizer whose step ends
        roots = [] if is_compiled(setup.model) else [("", setup.model)]
        self._calls = ModuleCalls(roots, after=self._returned)
        self._patches = Patches()
        self._gradients = 0
        self._backwards: list[SourceLine | None] = []  # since the last step
        self._called = False  # the model, with gradients, since the last backward
        self._differentiated = False
        self._backward_at: SourceLine | None = None

    def __enter__(self) -> Self:
        self._calls.__enter__()
        self._patches = Patches()
        self._patches.around(torch.autograd, "grad", before=self._differentiates)
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.__exit__(None, None, None)
        self._calls.remove()

    def _differentiates(self, *_: Any, **__: Any) -> None:
        self._differentiated = True

    def _returned(self, _path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        if torch.is_grad_enabled() and not in_backward():
            self._called = True
            for _, tensor in tensors_in(output):
                self._outputs.mark(tensor)

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        self._losses.mark(losses[0])
        if self._walked < _WALKED:
            self._parts.mark_parts(losses[0])
        self._backwards.append(user_line())
        self._differentiated |= not self._called  # this loss may be computed from gradients
        self._called = False

    def after_optimizer_step(self, optimizer: torch.optim.Optimizer, /) -> None:
        self._stepped = id(optimizer)
        if self._backwards and not self._differentiated and _has_graph(optimizer):
            self._gradients += 1
            self._backward_at = self._backward_at or self._backwards[0]
        self._backwards, self._differentiated = [], False

    def end_step(self, _step: int, /) -> None:
        self._walked += 1
        alive = {kind: graphs.end_step(self._stepped) for kind, graphs in self._kinds.items()}
        most = self._most = self._kind_of_most()
        if len(alive[most]) >= _SUSPICIOUS and self._holders.get(most) is None:
            self._holders[most] = _holder(alive[most])

    @property
    def observation(self) -> RetainedGraphs:
        most = self._most
        return RetainedGraphs(
            self._kinds[most].alive, self._holders.get(most), most, self._gradients, self._backward_at
        )

    def _kind_of_most(self) -> _Kind:
        """The kind of which most graphs were alive, and rather one that only rises: garbage is collected at times."""
        alive = {kind: graphs.alive for kind, graphs in self._kinds.items()}
        rises = {kind: RetainedGraphs(counts).only_rises for kind, counts in alive.items()}
        return max(alive, key=lambda kind: (rises[kind], sum(alive[kind])))  # of equal ones, the first


def _has_graph(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the first gradient that the optimizer has was recorded by autograd itself."""
    gradients = (p.grad for p in held_parameters(optimizer) if p.grad is not None)
    first = next(gradients, None)
    return first is not None and first.grad_fn is not None


def _holder(numbers: set[int]) -> Holder | None:
    """The holder of the tensor whose graph contains most of the nodes (a running total), or of the separate losses."""
    ending_here: set[tuple[int, int]] = set()
    through: list[tuple[int, int, int]] = []
    for tensor in [found for found in gc.get_objects() if type(found) is Tensor and found.grad_fn is not None]:
        nodes = walk([tensor], stop_at_zero_gradient=False).nodes
        met = len(numbers & {sequence_number(node) for node in nodes})
        if met > 1:
            through.append((met, len(nodes), id(tensor)))
        elif met:
            ending_here.add((id(tensor), len(nodes)))
    if through:
        most = max(met for met, _, _ in through)  # the total, and temporary results computed from it
        wanted = {total for met, _, total in through if met == most}
        count = min(nodes for met, nodes, _ in through if met == most)
    else:
        wanted, count = {key for key, _ in ending_here}, sum(nodes for _, nodes in ending_here)
    found = find_holder(wanted)
    if found is None:
        return None
    name, value, at = found
    return Holder(name, "tensor" if isinstance(value, Tensor) else type(value).__name__, at, count)
