"""Follows the graph of each loss by a weak reference, and sees which are alive after later steps.

What is followed is the node and not the tensor: `total = total + loss` lets the tensor go and keeps its graph.
"""

from __future__ import annotations

import gc
import weakref
from collections import deque
from typing import Any

from torch import Tensor

from debugkit.observations.retained_graphs import Holder, RetainedGraphs
from debugkit.probes import Probe, probe
from debugkit.probes.autograd_graph import walk
from debugkit.probes.holder_names import find_holder
from debugkit.subject import Subject

_REMEMBERED = 64
_MOST_FOLLOWED = 4096
_SUSPICIOUS = 5  # graphs alive before it is worth asking who holds them
_KEY = "debugkit.retained_graphs"


class _Token:
    """Lies in a graph node's own dictionary, and goes when the node goes."""

    __slots__ = ("__weakref__", "number")

    def __init__(self, number: int) -> None:
        self.number = number  # the node's sequence number, by which a walk knows it again


@probe(RetainedGraphs)
class RetainedGraphsProbe(Probe[RetainedGraphs]):
    """Tells of the last 64 steps. Holds no tensor and no graph."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._now: list[weakref.ref[_Token]] = []
        self._past: deque[weakref.ref[_Token]] = deque(maxlen=_MOST_FOLLOWED)
        self._alive: deque[int] = deque(maxlen=_REMEMBERED)
        self._holder: Holder | None = None

    def before_backward(self, loss: Tensor, /) -> None:
        if loss.grad_fn is not None:
            token = _Token(loss.grad_fn._sequence_nr())
            metadata: Any = loss.grad_fn.metadata  # declared as a method, and is a dict
            metadata[_KEY] = token
            self._now.append(weakref.ref(token))

    def end_step(self, _step: int, /) -> None:
        alive = {token.number for reference in self._past if (token := reference()) is not None}
        self._past = deque((reference for reference in self._past if reference() is not None), maxlen=_MOST_FOLLOWED)
        self._alive.append(len(alive))
        if len(alive) >= _SUSPICIOUS and self._holder is None:
            self._holder = _holder(alive)
        self._past.extend(self._now)
        self._now.clear()

    @property
    def observation(self) -> RetainedGraphs:
        return RetainedGraphs(tuple(self._alive), self._holder)


def _holder(numbers: set[int]) -> Holder | None:
    """The one tensor whose graph has most of the nodes in it, a running total; otherwise what has them in it."""
    ending_here: set[tuple[int, int]] = set()
    through: list[tuple[int, int, int]] = []
    for tensor in [found for found in gc.get_objects() if type(found) is Tensor and found.grad_fn is not None]:
        nodes = walk([tensor], stop_at_zero_gradient=False).nodes
        met = len(numbers & {node._sequence_nr() for node in nodes})
        if met > 1:
            through.append((met, len(nodes), id(tensor)))
        elif met:
            ending_here.add((id(tensor), len(nodes)))
    if through:
        most = max(met for met, _, _ in through)  # the total itself, and what a line is just making of it
        wanted = {total for met, _, total in through if met == most}
        count = min(nodes for met, nodes, _ in through if met == most)
    else:
        wanted, count = {key for key, _ in ending_here}, sum(nodes for _, nodes in ending_here)
    found = find_holder(wanted)
    if found is None:
        return None
    name, value, at = found
    return Holder(name, "tensor" if isinstance(value, Tensor) else type(value).__name__, at, count)
