"""Backward passes on several batches and seeds: which gradients are always zero, and how sizes change with depth."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from debugkit.finding import NotExamined
from debugkit.interventions.batch_variations import batch_variations
from debugkit.interventions.zero_weights import ZeroWeights
from debugkit.measurements.autograd_graph.measure import walk
from debugkit.measurements.gradient_flow import DeadLayer, GradientFlow, Stack, ZeroGradient
from debugkit.measurements.gradient_flow.relu_calls import ReluCall, ReluCalls
from debugkit.module_paths import plain_path
from debugkit.randomness import same_randomness
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.setup import TrainingSetup
from debugkit.structure import map_tensors, tensors_in

PASSES = 3
_SHORTEST_STACK = 4
_SUSPICIOUS_RATIO = 1e3
_SUSPICIOUS_SHARE = 0.5
_ATTENTION_SCORES = frozenset(("q_proj", "k_proj", "query", "key", "to_q", "to_k", "wq", "wk", "q", "k"))
"""The gradient of a softmax over one key is exactly zero."""
_STEP = 1e-2
"""Relative to a parameter's size: enough to open a zero gate, too little to change the function of a layer."""


# One pass (the cost of three forwards) if nothing is suspicious, else two more passes and one after a step.
def follow_the_gradient(setup: TrainingSetup) -> GradientFlow:
    """Run the passes. Gradients that are zero in each of them are measured again after a step with open gates."""
    record = _Record(setup)
    with _ModuleRecorder(record), ReluCalls(setup.module_paths) as relus:
        for seed, batch in enumerate(batch_variations(setup, PASSES)):
            relus.new_pass()
            record.run(batch, seed)
            if not (record.is_suspicious() or any(_mostly_dead(call) for call in relus.calls.values())):
                break
    still_zero: set[str] = set()
    still_dead: dict[tuple[str, int], int] = {}
    if record.always_zero() or any(_mostly_dead(call) for call in relus.calls.values()):
        still_zero, still_dead = _after_a_step(setup)
    zero = record.always_zero()
    return GradientFlow(
        passes=record.passes,
        alive=tuple(path for path in record.gradients if path not in zero),
        zero=tuple(record.described(path, path in still_zero) for path in zero),
        relus=tuple(_layer(call, still_dead.get(key)) for key, call in relus.calls.items()),
        stacks=tuple(record.stacks()),
    )


def _after_a_step(setup: TrainingSetup) -> tuple[set[str], dict[tuple[str, int], int]]:
    """Which gradients are zero, and how many units are dead, after a step and with all-zero gates opened."""
    _step(setup.model)
    _open_gates(setup.model)
    again = _Record(setup)
    with ReluCalls(setup.module_paths) as relus:
        again.run(_with_masks_open(setup.fresh_batch()), PASSES)
    return set(again.always_zero()), {key: int((~call.alive).sum()) for key, call in relus.calls.items()}


def _mostly_dead(call: ReluCall) -> bool:
    return float((~call.alive).double().mean()) > _SUSPICIOUS_SHARE


def _layer(call: ReluCall, after_a_step: int | None) -> DeadLayer:
    dead = int((~call.alive).sum())
    return DeadLayer(
        module=call.module,
        units=len(call.alive),
        dead=dead,
        samples=call.samples,
        after_a_step=dead if after_a_step is None else min(dead, after_a_step),
    )


@dataclass
class _Record:
    """Sizes of gradients and outputs by path, one entry per pass."""

    setup: TrainingSetup
    passes: int = 0
    gradients: dict[str, list[float]] = field(default_factory=dict)
    outputs: dict[str, list[float]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)  # modules in the order of their first calls
    inputs: dict[str, Tensor] = field(default_factory=dict)  # module -> its first input in this pass
    places: dict[str, tuple[int, ...]] = field(default_factory=dict)  # memory of these inputs in the last pass
    switched_off: set[int] = field(default_factory=set)  # id() of parameters behind a term of weight 0
    empty: set[str] = field(default_factory=set)  # modules that got an empty input in some pass

    def run(self, batch: Any, seed: int) -> None:
        self.setup.model.zero_grad(set_to_none=True)
        with same_randomness(seed), ZeroWeights() as weights:
            loss = self.setup.loss(batch)
        self.switched_off |= walk(weights.nodes).leaves
        if not loss.requires_grad:
            raise NotExamined("The loss has no autograd graph, so no parameter gets a gradient.")
        if not bool(loss.isfinite()) or float(loss.detach()) == 0.0:
            raise NotExamined(f"The loss is {float(loss.detach()):g}, so its gradients have no meaning.")
        loss.backward()  # type: ignore[no-untyped-call]
        self.passes += 1
        self.places = {path: (x.data_ptr(), *x.shape, *x.stride()) for path, x in self.inputs.items()}
        self.inputs.clear()
        for path, parameter in self.parameters.items():
            if parameter.grad is not None:
                self.gradients.setdefault(path, []).append(_rms(parameter.grad))

    @functools.cached_property
    def parameters(self) -> dict[str, nn.Parameter]:
        return {plain_path(path): parameter for path, parameter in self.setup.model.named_parameters()}

    def always_zero(self) -> list[str]:
        """Paths of parameters whose gradient was zero in every pass."""
        off = {path for path, parameter in self.parameters.items() if id(parameter) in self.switched_off}
        return [path for path, sizes in self.gradients.items() if not any(sizes) and path not in off]

    def is_suspicious(self) -> bool:
        """Whether more passes are worth their cost: a gradient is zero, or sizes along a stack differ widely."""
        series = [each for stack in self.stacks() for each in (*stack.gradients, *stack.outputs)]
        return bool(self.always_zero()) or any(max(s) > _SUSPICIOUS_RATIO * min(s) for s in series)

    def described(self, path: str, after_a_step: bool) -> ZeroGradient:
        module = path.rpartition(".")[0]
        return ZeroGradient(
            path=path,
            module=module,
            numel=self.parameters[path].numel(),
            matrix=self.parameters[path].ndim > 1,
            after_a_step=after_a_step,
            one_of_several=self._is_one_of_several(module),
        )

    def stacks(self) -> list[Stack]:
        """Matrices of linear and convolution layers whose paths differ in one number, each called once per pass."""
        groups: dict[str, list[str]] = {}
        for module in self.order:
            sizes = self.gradients.get(f"{module}.weight", [])
            if len(sizes) == len(self.outputs[module]) == self.passes:
                for found in re.finditer(r"\d+", module):
                    groups.setdefault(f"{module[: found.start()]}*{module[found.end() :]}", []).append(module)
        return [
            Stack(
                pattern=pattern,
                modules=tuple(modules),
                gradients=tuple(tuple(self.gradients[f"{m}.weight"][i] for m in modules) for i in range(self.passes)),
                outputs=tuple(tuple(self.outputs[m][i] for m in modules) for i in range(self.passes)),
            )
            for pattern, modules in groups.items()
            if len(modules) >= _SHORTEST_STACK and len({self.places.get(m) for m in modules}) == len(modules)
        ]

    def _is_one_of_several(self, module: str) -> bool:
        """Whether it is an expert, a task's head, or a query or key projection (its gradient is 0 with one key)."""
        parts = module.split(".")
        paths = {path: each for each, path in self.setup.module_paths.items()}
        if parts[-1] in _ATTENTION_SCORES or getattr(paths[module], "padding_idx", None) is not None:
            return True
        for depth in range(len(parts), 0, -1):
            entry, owner = ".".join(parts[:depth]), ".".join(parts[: depth - 1])
            if entry in self.empty:
                return True
            if isinstance(paths[owner], nn.ModuleList | nn.ModuleDict) and entry in self.places:
                same_input = [p for p, place in self.places.items() if place == self.places[entry] and p != entry]
                if any(p.rpartition(".")[0] == owner and self._trains(p) for p in same_input):
                    return True
        return False

    def _trains(self, module: str) -> bool:
        return any(any(sizes) for path, sizes in self.gradients.items() if path.startswith(f"{module}."))


class _ModuleRecorder:
    """Hooks that record the order of modules, their inputs, and the size of their outputs."""

    def __init__(self, record: _Record) -> None:
        self.record = record
        self._calls = ModuleCalls(record.setup.named_modules, after=self._after)

    def __enter__(self) -> None:
        self._calls.__enter__()

    def __exit__(self, *_: object) -> None:
        self._calls.remove()

    def _after(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        record = self.record
        first = next((tensor for _, tensor in tensors_in((args, kwargs))), None)
        if first is not None:
            record.inputs[path] = first.detach()
            if first.numel() == 0:
                record.empty.add(path)
        if _is_a_matrix(module) and isinstance(output, Tensor) and output.numel():
            if path not in record.outputs:
                record.order.append(path)
            record.outputs.setdefault(path, []).append(_rms(output.detach()))


def _is_a_matrix(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim >= 2 and not isinstance(module, nn.Embedding | nn.EmbeddingBag)


def _rms(tensor: Tensor) -> float:
    values = tensor.coalesce().values() if tensor.is_sparse else tensor
    if not values.numel():
        return 0.0
    size = float(values.detach().double().square().mean().sqrt())
    # The square of a number below 1e-160 is zero in float64, although the number is not.
    return size or float(values.detach().abs().max())


def _step(model: nn.Module) -> None:
    """One small step along the last negative gradient, in proportion to each parameter's size."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is None or parameter.grad.is_sparse or not (size := _rms(parameter.grad)):
                continue
            parameter.add_(parameter.grad, alpha=-_STEP * (_rms(parameter) or 1.0) / size)


def _open_gates(model: nn.Module) -> None:
    """Write small values into parameters that are entirely zero: a gate, LoRA's B, a zero-initialised projection."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and not bool(parameter.any()):
                parameter.add_(_STEP * torch.randn(parameter.shape, generator=generator).to(parameter))


def _with_masks_open(batch: Any) -> Any:
    """The batch with every flag per sample (a camera or a task that is present) set to True."""
    return map_tensors(
        batch, lambda _, tensor: torch.ones_like(tensor) if tensor.dtype is torch.bool and tensor.ndim == 1 else tensor
    )
