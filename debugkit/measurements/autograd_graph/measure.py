"""The autograd graph behind a tensor: its nodes, the parameters at its ends, and the module outputs on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from debugkit._torch_private import base_of, function_of, rounding_mode_of, without_torch_function
from debugkit.measurements.autograd_graph import AutogradGraph
from debugkit.measurements.autograd_graph.graph_probe import GraphProbe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

# These pass a gradient of exactly zero, so for a parameter behind them the graph ends here.
_ZERO_GRADIENT = ("RoundBackward", "FloorBackward", "CeilBackward", "TruncBackward", "SignBackward", "SgnBackward")


def count_graph_nodes(tensor: Tensor) -> int:
    """The number of autograd nodes that `tensor` keeps alive; 0 for a tensor without a graph.

    A running total whose count grows by the same amount in each step keeps the graphs of all past steps.

    >>> weight = torch.ones(3, requires_grad=True)
    >>> total = (weight * 2).sum()
    >>> count_graph_nodes(total), count_graph_nodes(total + (weight * 2).sum()), count_graph_nodes(total.detach())
    (3, 6, 0)
    """
    return len(walk([tensor], stop_at_zero_gradient=False).nodes)


def gradient_node(tensor: Tensor) -> Node | None:
    """The node that a gradient of `tensor` would reach: its grad_fn, or the gradient accumulator of a leaf."""
    if not tensor.requires_grad:
        return None
    if tensor.grad_fn is not None:
        return tensor.grad_fn
    # A view created under no_grad has requires_grad=True but no node. Its base has one.
    leaf = base_of(tensor)
    if leaf is not tensor:
        return gradient_node(leaf)
    with without_torch_function():
        return torch.autograd.graph.get_gradient_edge(leaf).node


def node_metadata(node: Node) -> dict[str, Any]:
    """What is stored with a node, and freed together with it: torch's stub declares a method, and it is a dict."""
    metadata: Any = node.metadata
    return cast("dict[str, Any]", metadata)


@dataclass
class Walk:
    """The nodes behind some tensors. It keeps them alive, so drop it when it is no longer needed."""

    nodes: set[Node] = field(default_factory=set)
    leaves: set[int] = field(default_factory=set)  # id() of the leaf tensors
    opaque: set[str] = field(default_factory=set)  # custom Functions


def walk(tensors: Iterable[Tensor | Node], *, stop_at_zero_gradient: bool = True) -> Walk:
    """All nodes that a gradient starting at `tensors` would pass."""
    found = Walk()
    waiting = [node for item in tensors if (node := gradient_node(item) if isinstance(item, Tensor) else item)]
    while waiting:
        node = waiting.pop()
        if node in found.nodes:
            continue
        found.nodes.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            found.leaves.add(id(leaf))
        if is_custom(node):
            found.opaque.add(node.name().removesuffix("Backward"))
        if not (stop_at_zero_gradient and _passes_only_zeros(node)):
            waiting.extend(following for following, _ in node.next_functions if following is not None)
    return found


class AutogradGraphProbe(GraphProbe[AutogradGraph]):
    """Records which modules ran and the graphs of their outputs and, before backward, what the loss reaches.

    It holds nodes from a forward until its backward, and none after exit.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    >>> with AutogradGraphProbe(TrainingSetup.of(model)) as probe:
    ...     probe.before_backward([model[1](model[0](torch.ones(1, 2)).detach()).sum()])
    >>> probe.observation.unreached, probe.observation.reached
    (('0.weight', '0.bias'), ('1.weight', '1.bias'))
    """

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup, ModuleCalls(setup.model.named_modules(), after=self._record))
        self.model = setup.model
        self.outputs: list[tuple[str, list[Node]]] = []  # module path and its output's nodes, in order of completion
        self._ran: set[str] = set()

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        self.examine(losses[:1])
        self.forget()

    def end_step(self, _step: int) -> None:
        self.forget()

    def forget(self) -> None:
        self.outputs.clear()
        self._ran.clear()

    def examine(self, losses: Iterable[Tensor], consumed: Iterable[int] = ()) -> AutogradGraph:
        """Walk from `losses`. `consumed` holds id()s of parameters that are used although their module did not run."""
        met = walk(losses)
        trainable = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        consumed = set(consumed)
        self.seen = AutogradGraph(
            nodes=len(met.nodes),
            reached=tuple(name for name, p in trainable.items() if id(p) in met.leaves),
            unreached=tuple(name for name, p in trainable.items() if id(p) not in met.leaves),
            used=tuple(n for n, p in trainable.items() if id(p) in consumed or n.rpartition(".")[0] in self._ran),
            opaque=tuple(sorted(met.opaque)),
        )
        return self.seen

    def _record(self, path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        self._ran.add(path)
        nodes = [node for _, tensor in tensors_in(output) if (node := gradient_node(tensor)) is not None]
        if nodes:
            self.outputs.append((path, nodes))


def is_custom(node: Node) -> bool:
    """Whether a torch.autograd.Function made this node. A walk cannot know what its backward does."""
    return function_of(node) is not None


def _passes_only_zeros(node: Node) -> bool:
    name = node.name()
    if name.startswith("DivBackward"):
        return rounding_mode_of(node) is not None
    return name.startswith(_ZERO_GRADIENT)
