"""Find the layers just before the loss in its graph, and compare their weights with PyTorch's own initialisation.

Also find a layer that alone is frozen, and compare its weights with what they may have been drawn from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from debugkit._torch_private import CONVOLUTIONS, in_backward, parameters_of, sequence_number
from debugkit.finding import NotExamined
from debugkit.held_parameters import held_parameters
from debugkit.kolmogorov_smirnov import scaled_distance
from debugkit.measurements.autograd_graph.graph_probe import GraphProbe
from debugkit.measurements.autograd_graph.measure import gradient_node
from debugkit.preserve_state import same_start
from debugkit.randomness import same_randomness
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.rules.dk117_frozen_random_head import FARTHEST, FrozenAlone, Head, Heads, Weights
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_SAMPLE = 1 << 16


class HeadsProbe(GraphProbe[Heads]):
    """Keeps the numbers of graph nodes and no node; weights are read once, before backward."""

    def __init__(self, setup: TrainingSetup) -> None:
        layers = [(path, module) for path, module in setup.named_modules if any(True for _ in own_parameters(module))]
        self.layers = {path: module for path, module in layers if not any(True for _ in module.children())}
        super().__init__(setup, ModuleCalls(self.layers.items(), after=self._after))
        self._made: dict[int, str] = {}  # the sequence number of an output's node → the layer

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        nodes = [node for loss in losses if (node := gradient_node(loss)) is not None]
        heads = [self.head(path, node) for path, node in self.nearest(nodes) if is_linear(self.layers[path])]
        trainable = sum(parameter.requires_grad for parameter in self.setup.model.parameters())
        unique = {head.own.module: head for head in heads}
        self.seen = Heads(tuple(unique.values()), trainable)
        self.forget()

    def last_layers(self, loss: Tensor) -> set[str]:
        """The layers without another one between them and the loss."""
        node = gradient_node(loss)
        return {path for path, _ in self.nearest([node])} if node is not None else set()

    def forget(self) -> None:
        self._made.clear()

    def _after(self, path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        if in_backward():
            return
        for _, tensor in tensors_in(output):
            if tensor.grad_fn is not None:
                self._made.setdefault(sequence_number(tensor.grad_fn), path)

    def nearest(self, waiting: Iterable[Node]) -> Iterator[tuple[str, Node]]:
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

    def head(self, path: str, node: Node) -> Head:
        module = self.layers[path]
        behind = [following for following, _ in node.next_functions if following is not None]
        before: dict[str, Weights] = {}
        while behind:
            found = list(self.nearest(behind))
            linear = [one for one, _ in found if is_linear(self.layers[one]) and one != path]
            before |= {one: _weights(one, self.layers[one]) for one in linear}
            behind = [
                following
                for one, at in found
                if one not in linear  # a norm: go on to what it reads
                for following, _ in at.next_functions
                if following is not None
            ]
        return Head(_weights(path, module), tuple(before.values()), self._is_shared(module), self.is_resting(module))

    def _is_shared(self, module: nn.Module) -> bool:
        holders = Counter(id(own) for part in self.setup.model.modules() for own in own_parameters(part))
        return any(holders[id(own)] > 1 for own in own_parameters(module))

    def is_resting(self, module: nn.Module) -> bool:
        own = {id(parameter) for parameter in own_parameters(module)}
        held = [list(held_parameters(optimizer)) for optimizer in self.optimizers]
        return any(
            any(id(one) in own for one in parameters) and not any(one.requires_grad for one in parameters)
            for parameters in held
        )

    @property
    def optimizers(self) -> Sequence[torch.optim.Optimizer]:
        return self.setup.optimizers


def own_parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    return (parameter for parameter in parameters_of(module).values() if parameter is not None)


def is_linear(module: nn.Module) -> bool:
    """Also not quantised: those hold packed integers."""
    if not isinstance(module, (nn.Linear, *CONVOLUTIONS)):
        return False
    return all(one.is_floating_point() and not one.is_meta for one in own_parameters(module))


@torch.no_grad()
def _weights(path: str, module: nn.Module) -> Weights:
    own = list(own_parameters(module))
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


_LEAST = 64
_FEWEST_OTHERS = 2
_USUAL_DEVIATION = 0.02
_MOST_ODD = 0.2
"""The share of other layers that may not look new: one in a hundred new ones is beyond the 1 % level."""
_WITH_ONE_WEIGHT = (nn.Linear, nn.Embedding, *CONVOLUTIONS)
_NORMS = (
    nn.LayerNorm,
    nn.GroupNorm,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
)


def find_the_frozen_layer(setup: TrainingSetup) -> FrozenAlone:
    """Read the weights; run one pass only where one layer alone is frozen. Raises NotExamined where none is."""
    alone, weight = read_the_frozen_layer(setup)
    reached, last = _place(setup, alone.module, weight)
    return replace(alone, reached=reached, last=last)


def read_the_frozen_layer(setup: TrainingSetup) -> tuple[FrozenAlone, Tensor]:
    """The layer, which is taken to be reached by the loss and not the last one, and its weights."""
    if setup.declare.trainable is not None or setup.declare.pretrained or setup.declare.checkpoint is not None:
        raise NotExamined("The trainable parameters or loaded weights are declared.")
    if any(optimizer.state for optimizer in setup.optimizers):
        raise NotExamined("The optimizer has taken steps, so the layers that train do not look new.")
    path, module = only_frozen(setup)
    weight = weight_of(module)
    deviations = _deviations(setup)
    drawn, distance = _drawn(module, deviations)
    if distance >= FARTHEST:
        raise NotExamined("The frozen layer does not look as it was drawn.")
    others = [other for _, other in _layers(setup) if other is not module]
    odd = [other for other in others if weight_of(other).numel() >= _LEAST and _drawn(other, deviations)[1] >= FARTHEST]
    if len(others) < _FEWEST_OTHERS or len(odd) > _MOST_ODD * len(others) or not _norms_are_new(setup):
        raise NotExamined("The layers that train do not look new, so the model may have been loaded.")
    alone = FrozenAlone(
        module=path,
        parameter=setup.parameter_paths[id(weight)],
        weights=weight.numel(),
        drawn=drawn,
        distance=distance,
        others=len(others),
        reached=True,
        last=False,
        partly=any(own.requires_grad for own in own_parameters(module)),
    )
    return alone, weight


def _layers(setup: TrainingSetup) -> list[tuple[str, nn.Module]]:
    """The layers with one weight matrix in floating point."""
    return [
        (path, module)
        for path, module in setup.named_modules
        if isinstance(module, _WITH_ONE_WEIGHT)
        and (weight := parameters_of(module).get("weight")) is not None
        and weight.is_floating_point()
        and not weight.is_meta
    ]


def weight_of(module: nn.Module) -> Tensor:
    weight = parameters_of(module)["weight"]
    assert weight is not None
    return weight


def only_frozen(setup: TrainingSetup) -> tuple[str, nn.Module]:
    matrices = {id(one): one for one in setup.model.parameters() if one.ndim > 1}
    frozen = [key for key, one in matrices.items() if not one.requires_grad]
    holders = Counter(id(own) for _, part in setup.named_modules for own in own_parameters(part))
    found = [(path, module) for path, module in _layers(setup) if id(weight_of(module)) in frozen]
    if len(frozen) != 1 or len(found) != 1 or holders[frozen[0]] > 1 or weight_of(found[0][1]).numel() < _LEAST:
        raise NotExamined("There is no layer whose weights alone are frozen.")
    held = [list(held_parameters(optimizer)) for optimizer in setup.optimizers]
    if any(one is not None and not any(p.requires_grad for p in one) for one in held if one):
        raise NotExamined("An optimizer holds frozen parameters only: parts of the model train in turn.")
    return found[0]


def _deviations(setup: TrainingSetup) -> set[float]:
    """What normal weights may have been drawn with, by the configurations."""
    configs = [getattr(module, "config", None) for module in setup.model.modules()]
    ranges = [getattr(config, "initializer_range", None) for config in configs]
    return {_USUAL_DEVIATION, *(float(one) for one in ranges if isinstance(one, float) and one > 0)}


@torch.no_grad()
def _drawn(module: nn.Module, deviations: set[float]) -> tuple[str, float]:
    """The distribution that fits best, and the distance from it."""
    weight = weight_of(module).detach()
    found: dict[str, float] = {}
    if isinstance(module, nn.Embedding):
        deviations = {*deviations, 1.0}
        if module.padding_idx is not None:
            kept = torch.arange(len(weight), device=weight.device) != module.padding_idx
            weight = weight[kept]
    else:
        seen = _weights("", module)
        if seen.look_new:
            found["PyTorch's uniform distribution"] = seen.distance
    flat = weight.flatten()
    values = flat[:: -(-len(flat) // _SAMPLE)].double().sort().values
    for deviation in deviations:
        found[f"a normal distribution with deviation {deviation:g}"] = scaled_distance(
            torch.special.ndtr(values / deviation)
        )
    return min(found.items(), key=lambda item: item[1])


def _norms_are_new(setup: TrainingSetup) -> bool:
    """Whether every norm still has the weights and biases that it began with: ones or zeros."""
    own = [one for module in setup.model.modules() if isinstance(module, _NORMS) for one in own_parameters(module)]
    return all(bool((one == one.flatten()[0]).all()) for one in own if one.numel() and not one.is_meta)


def _place(setup: TrainingSetup, path: str, weight: Tensor) -> tuple[bool, bool]:
    """Whether the layer gets a gradient once it is trainable, and whether it is the last one before the loss."""
    setup.model.eval()
    probe = HeadsProbe(setup)
    weight.requires_grad_(True)
    try:
        with probe, same_start(setup), torch.enable_grad(), same_randomness(0):
            loss = setup.loss()
            last = path in probe.last_layers(loss)
            (gradient,) = torch.autograd.grad(loss, [weight], allow_unused=True) if loss.requires_grad else (None,)
    finally:
        weight.requires_grad_(False)
    if gradient is None:
        return False, last
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return bool((values != 0).any()), last
