"""Replaces the output of modules that no gradient passes through. If nothing moves, they have no effect.

A non-zero gradient proves an effect, and settles nearly every module in one step. The remaining modules are perturbed
all at once, because usually either none of them has an effect or none is left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from debugkit.finding import NotExamined
from debugkit.interventions.passes import RELATIVE_FLOOR, distance, require_finite, require_quiet
from debugkit.interventions.trainable_twins import has_trainable_twin
from debugkit.interventions.zero_gates import open_gates
from debugkit.interventions.zero_weights import ZeroWeights
from debugkit.measurements.autograd_graph.measure import walk
from debugkit.preserve_state import same_start
from debugkit.randomness import same_randomness
from debugkit.recorders.module_calls import ModuleCalls, every_call
from debugkit.rules.dk008_branch_without_effect import BranchEffect, BranchEffects
from debugkit.setup import TrainingSetup
from debugkit.structure import map_tensors, tensors_in

_MOST_ALONE = 4
_LOSS = "loss of the step"
Results = dict[str, Tensor]  # the loss, and every tensor that the model returns


def perturb_branches(setup: TrainingSetup) -> BranchEffects:
    """Run one step. If candidates remain, run up to a dozen passes."""
    averages = _moving_averages(setup.model)
    calls = _Calls(setup.model)
    before = calls.run(setup)
    require_finite(before[_LOSS])
    candidates = [path for path in calls.candidates() if path not in averages]
    if not candidates:
        return BranchEffects(len(calls.called), (), RELATIVE_FLOOR)
    returned = _returned_by(setup, candidates)
    noise = _moved(before, _results(setup))
    require_quiet(noise)
    floor = max(10 * noise, RELATIVE_FLOOR)  # whatever the dtype: an output that nothing reads moves nothing at all
    idle = [path for path in _idle(setup, candidates, before, floor) if not calls.has_effective_parts(path)]
    moved = _moved(before, _results(setup, idle)) if idle else 0.0
    idle = [path for path in idle if not _parts_matter(setup, path, before, floor)]
    again = _again(setup, idle) if idle else 0.0
    if again > floor and len(idle) > 1:
        alone = {path: _again(setup, [path]) for path in idle[:_MOST_ALONE]}
    else:
        alone = dict.fromkeys(idle, again)
    return BranchEffects(
        called=len(calls.called),
        branches=tuple(
            BranchEffect(
                module=path,
                kind=type(module := setup.model.get_submodule(path)).__name__,
                parameters=sum(parameter.numel() for parameter in module.parameters()),
                moved=moved,
                moved_again=alone[path],
                returned_by=returned.get(path),
            )
            for path in alone
        ),
        floor=floor,
    )


def _moving_averages(model: nn.Module) -> set[str]:
    """Frozen copies of trainable modules: a teacher's weight may still be 0, a momentum encoder may fill a queue."""
    frozen = {
        path: module
        for path, module in model.named_modules()
        if path and any(True for _ in module.parameters()) and not any(p.requires_grad for p in module.parameters())
    }
    return {path for path, module in frozen.items() if has_trainable_twin(module, model)}


class _Calls:
    """One step in the model's own mode with every parameter trainable: which modules ran, and which got a gradient."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.called: dict[str, nn.Module] = {}
        self._differentiable: set[str] = set()
        self._reached: set[str] = set()
        self.effective: set[str] = set()
        """Those with a gradient, and those whose term of the loss has weight 0 in this step."""
        self._nodes: list[tuple[str, Any]] = []

    def run(self, setup: TrainingSetup) -> Results:
        for parameter in self.model.parameters():
            if parameter.is_leaf and parameter.is_floating_point():
                parameter.requires_grad_(True)
        with ModuleCalls(self.model.named_modules(), after=self._after), ZeroWeights() as weights:
            results = _results(setup)
        off = walk(weights.nodes, stop_at_zero_gradient=False).nodes
        self.effective |= {path for path, node in self._nodes if node in off}
        self._nodes.clear()
        generator = torch.Generator().manual_seed(0)
        targets = [tensor for tensor in results.values() if tensor.requires_grad]
        if not targets:
            raise NotExamined("The loss has no autograd graph, so it does not show what it depends on.")
        weights = [torch.randn(t.shape, generator=generator).to(t.device, t.dtype) for t in targets]
        torch.autograd.backward(targets, weights)
        return {path: tensor.detach() for path, tensor in results.items()}

    def candidates(self) -> list[str]:
        """The outermost modules that ran without a gradient, except experts to which this batch gives no weight."""
        idle = [path for path in self.called if path and path not in self.effective and self._is_a_branch(path)]
        return [path for path in idle if not any(_inside(path, other) for other in idle if other != path)]

    def has_effective_parts(self, path: str) -> bool:
        """Whether a module inside had a gradient, as in a language model that is called only for its cache."""
        return any(_inside(other, path) for other in self.effective)

    def _is_a_branch(self, path: str) -> bool:
        parameters = any(True for _ in self.called[path].parameters())
        if not parameters and path not in self._differentiable:
            return False  # a metric, a mask, a rotary table
        parent = path.rpartition(".")[0]
        sibling = any(other.rpartition(".")[0] == parent for other in self.effective if other != path)
        in_a_list = isinstance(self.model.get_submodule(parent), nn.ModuleList | nn.ModuleDict)
        return not (path in self._reached and in_a_list and sibling)

    def _after(self, path: str, module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        tensors = [t for _, t in tensors_in(output) if t.is_floating_point() and t.numel()]
        if tensors:
            self.called[path] = module
        for tensor in tensors:
            if tensor.requires_grad:
                self._differentiable.add(path)
                self._nodes.append((path, tensor.grad_fn))
                tensor.register_hook(lambda gradient: self._record(path, gradient))  # type: ignore[no-untyped-call]

    def _record(self, path: str, gradient: Tensor) -> None:
        self._reached.add(path)
        if path not in self.effective and bool((gradient != 0).any()):
            self.effective.add(path)


def _results(setup: TrainingSetup, perturbed: Iterable[str] = (), seed: int = 0) -> Results:
    """The loss and the model's outputs, with equal random draws and with the outputs of `perturbed` replaced."""
    kept: Results = {}

    def keep(module: nn.Module, output: Any) -> None:
        if module is setup.model:
            kept.update((path, t) for path, t in tensors_in(output) if t.ndim > 0 and t.is_floating_point())

    seeds = {path: number for number, path in enumerate(perturbed)}

    def replace(path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> Any:
        generator = torch.Generator().manual_seed(seeds[path])
        return map_tensors(output, lambda _, tensor: _noisy(tensor, generator))

    modules = [(path, setup.model.get_submodule(path)) for path in seeds]
    with same_start(setup), ModuleCalls(modules, after=replace), every_call(keep), same_randomness(seed):
        kept[_LOSS] = setup.loss()
    return kept


def _noisy(tensor: Tensor, generator: torch.Generator) -> Tensor:
    finite = tensor.detach()[torch.isfinite(tensor.detach())] if tensor.is_floating_point() else tensor.new_empty(0)
    if finite.numel() == 0:
        return tensor
    size = float(finite.float().abs().mean()) + 0.1
    noise = torch.randn(tensor.shape, generator=generator).to(tensor.device, tensor.dtype)
    return tensor + size * noise


def _moved(before: Results, after: Results) -> float:
    return max(distance(tensor, after[path]) for path, tensor in before.items() if path in after)


def _idle(setup: TrainingSetup, candidates: Sequence[str], before: Results, floor: float) -> list[str]:
    """The modules that move nothing. If all of them together move something, the first few are tried one by one."""
    if _moved(before, _results(setup, candidates)) <= floor:
        return list(candidates)
    if len(candidates) == 1:
        return []
    return [path for path in candidates[:_MOST_ALONE] if _moved(before, _results(setup, [path])) <= floor]


def _parts_matter(setup: TrainingSetup, path: str, before: Results, floor: float) -> bool:
    """Whether the module's parts have an effect other than through its output, and without a gradient."""
    parts = [f"{path}.{name}" for name, part in setup.model.get_submodule(path).named_modules() if name]
    return bool(parts) and _moved(before, _results(setup, parts)) > floor


def _again(setup: TrainingSetup, idle: Sequence[str]) -> float:
    """The largest movement with zero gates open and other draws, and in eval mode."""
    with open_gates(setup.model):
        moved = _moved(_results(setup, seed=1), _results(setup, idle, seed=1))
    with _evaluating(setup.model):
        return max(moved, _moved(_results(setup), _results(setup, idle)))


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training


def _returned_by(setup: TrainingSetup, candidates: Sequence[str]) -> dict[str, str]:
    """Candidate → the innermost enclosing module that returns its output, or something computed from it."""
    made: dict[str, set[Any]] = {}
    found: dict[str, str] = {}

    def look(path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        tensors = [tensor for _, tensor in tensors_in(output)]
        if path in candidates:
            made[path] = {tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None}
            return
        waiting = [one for one in made if one not in found and _inside(one, path)]
        if waiting:
            nodes = walk([t for t in tensors if t.requires_grad], stop_at_zero_gradient=False).nodes
            found.update((one, path) for one in waiting if made[one] & nodes)

    wanted = [(p, module) for p, module in setup.model.named_modules() if any(_inside(c, p) for c in candidates)]
    with ModuleCalls(wanted, after=look):
        _results(setup)
    made.clear()
    return found


def _inside(path: str, ancestor: str) -> bool:
    return not ancestor or path == ancestor or path.startswith(f"{ancestor}.")
