"""Find the layers just before the loss in its graph, and compare their weights with PyTorch's own initialisation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from debugkit._torch_private import CONVOLUTIONS, in_backward, parameters_of, sequence_number
from debugkit.held_parameters import held_parameters
from debugkit.kolmogorov_smirnov import scaled_distance
from debugkit.measurements.autograd_graph.graph_probe import GraphProbe
from debugkit.measurements.autograd_graph.measure import gradient_node
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.rules.dk117_frozen_random_head import Head, Heads, Weights
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_SAMPLE = 1 << 16


class HeadsProbe(GraphProbe[Heads]):
    """Keeps the numbers of graph nodes and no node; weights are read once, before backward."""

    def __init__(self, setup: TrainingSetup) -> None:
        layers = [(path, module) for path, module in setup.named_modules if any(True for _ in _own(module))]
        self._layers = {path: module for path, module in layers if not any(True for _ in module.children())}
        super().__init__(setup, ModuleCalls(self._layers.items(), after=self._after))
        self._made: dict[int, str] = {}  # the sequence number of an output's node → the layer

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        nodes = [node for loss in losses if (node := gradient_node(loss)) is not None]
        heads = [self._head(path, node) for path, node in self._nearest(nodes) if _is_linear(self._layers[path])]
        trainable = sum(parameter.requires_grad for parameter in self.setup.model.parameters())
        unique = {head.own.module: head for head in heads}
        self.seen = Heads(tuple(unique.values()), trainable)
        self.forget()

    def forget(self) -> None:
        self._made.clear()

    def _after(self, path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        if in_backward():
            return
        for _, tensor in tensors_in(output):
            if tensor.grad_fn is not None:
                self._made.setdefault(sequence_number(tensor.grad_fn), path)

    def _nearest(self, waiting: Iterable[Node]) -> Iterator[tuple[str, Node]]:
        """The layers that a walk towards the inputs meets first, with the nodes of their outputs."""
        waiting, known = list(waiting), set()
        while waiting:
            node = waiting.pop()
            if node in known:
                continue
            known.add(node)
            path = self._made.get(sequence_number(node))
            if path is not None:
                yield path, node
            else:
                waiting += [following for following, _ in node.next_functions if following is not None]

    def _head(self, path: str, node: Node) -> Head:
        module = self._layers[path]
        behind = [following for following, _ in node.next_functions if following is not None]
        before: dict[str, Weights] = {}
        while behind:
            found = list(self._nearest(behind))
            linear = [one for one, _ in found if _is_linear(self._layers[one]) and one != path]
            before |= {one: _weights(one, self._layers[one]) for one in linear}
            behind = [
                following
                for one, at in found
                if one not in linear  # a norm: go on to what it reads
                for following, _ in at.next_functions
                if following is not None
            ]
        return Head(_weights(path, module), tuple(before.values()), self._is_shared(module), self._is_resting(module))

    def _is_shared(self, module: nn.Module) -> bool:
        holders = Counter(id(own) for part in self.setup.model.modules() for own in _own(part))
        return any(holders[id(own)] > 1 for own in _own(module))

    def _is_resting(self, module: nn.Module) -> bool:
        own = {id(parameter) for parameter in _own(module)}
        held = [list(held_parameters(optimizer)) for optimizer in self._optimizers]
        return any(
            any(id(one) in own for one in parameters) and not any(one.requires_grad for one in parameters)
            for parameters in held
        )

    @property
    def _optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        return self.setup.optimizers


def _own(module: nn.Module) -> Iterator[nn.Parameter]:
    return (parameter for parameter in parameters_of(module).values() if parameter is not None)


def _is_linear(module: nn.Module) -> bool:
    """Also not quantised: those hold packed integers."""
    if not isinstance(module, (nn.Linear, *CONVOLUTIONS)):
        return False
    return all(one.is_floating_point() and not one.is_meta for one in _own(module))


@torch.no_grad()
def _weights(path: str, module: nn.Module) -> Weights:
    own = list(_own(module))
    weight = next((one for one in own if one.ndim > 1), own[0])
    bound = weight[0].numel() ** -0.5  # PyTorch's initialisation of both classes
    flat = weight.detach().flatten()
    every = -(-len(flat) // _SAMPLE)
    values = (flat[::every].double() / bound).sort().values
    return Weights(
        module=path,
        weights=weight.numel(),
        frozen=not any(one.requires_grad for one in own),
        largest=max(float(one.detach().abs().max()) / bound for one in own),
        distance=scaled_distance((values.clamp(-1, 1) + 1) / 2),
    )
