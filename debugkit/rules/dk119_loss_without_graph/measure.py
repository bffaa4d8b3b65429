"""Look at the graphs of few nodes that backward starts from: whether they end in a parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor
from torch.optim import Optimizer

from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.held_parameters import held_parameters
from debugkit.measurements.autograd_graph.measure import gradient_node, is_custom
from debugkit.probe import SAMPLED_EVERY, Probe
from debugkit.rules.dk119_loss_without_graph import LossesWithoutGraph
from debugkit.setup import TrainingSetup

_MOST_NODES = 64
"""A loss that a model computed has more, or has a parameter among them."""
_NODES_OF_A_NUMBER = 2
"""A new leaf, divided or scaled."""


class LossesWithoutGraphProbe(Probe[LossesWithoutGraph]):
    """Reads no value; follows at most 64 nodes of a graph, and keeps none."""

    watch_every = SAMPLED_EVERY

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._steps = self._unreached = 0
        self._at: SourceLine | None = None
        self._raised = False
        self._since: list[SourceLine | None] = []
        """The line of each `backward()` since the last step, if none of them can reach a parameter."""
        self._reached = self._is_new = False
        self._parameters: set[int] = set()  # id()

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        if not all(loss.requires_grad for loss in losses):
            return  # backward raises
        nodes = [_nodes_without_a_parameter(loss, self._is_known) for loss in losses]
        self._reached |= None in nodes
        self._is_new = max((number or 0 for number in nodes), default=0) <= _NODES_OF_A_NUMBER
        self._since.append(user_line())

    def after_optimizer_step(self, optimizer: Optimizer, /) -> None:
        self._steps += 1
        self._end([optimizer])

    def loop_failed(self) -> None:
        self._raised = self._is_new and self._end(self.setup.optimizers)  # it may raise between two backwards, too

    @property
    def observation(self) -> LossesWithoutGraph:
        return LossesWithoutGraph(self._steps, self._unreached, self._at, self._raised)

    def _end(self, optimizers: Sequence[Optimizer]) -> bool:
        """End a step of these optimizers; whether backward was called in it and could reach no parameter."""
        since, reached = self._since, self._reached
        self._since, self._reached = [], False
        if not since or reached or any(one.grad is not None for one in held_parameters(*optimizers)):
            return False
        self._unreached += 1
        self._at = self._at or since[0]
        return True

    def _is_known(self, leaf: Tensor) -> bool:
        """Whether a leaf is a parameter: of the model, or one that an optimizer holds."""
        if id(leaf) not in self._parameters:
            setup = self.setup
            self._parameters = set(map(id, (*setup.model.parameters(), *held_parameters(*setup.optimizers))))
        return id(leaf) in self._parameters


def _nodes_without_a_parameter(loss: Tensor, is_known: Callable[[Tensor], bool]) -> int | None:
    """The number of nodes of a small graph in which no node leads to a parameter; None of any other graph."""
    node = gradient_node(loss)
    waiting, known = [node] if node is not None else [], set()
    while waiting:
        node = waiting.pop()
        if node in known:
            continue
        known.add(node)
        leaf = getattr(node, "variable", None)
        if is_custom(node) or len(known) > _MOST_NODES or (leaf is not None and is_known(leaf)):
            return None
        waiting += [following for following, _ in node.next_functions if following is not None]
    return len(known)
