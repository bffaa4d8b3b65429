"""Replace the output of modules that no gradient comes through: where nothing moves, they ran for nothing.

A gradient that is not zero proves an effect, and finds nearly every module in one step. What is left is perturbed: all
of it at once, since as a rule nothing moves or nothing is left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from debugkit.experiments import experiment
from debugkit.experiments.passes import distance, minimal_floor
from debugkit.experiments.zero_gates import open_gates
from debugkit.finding import NotExamined
from debugkit.observations.branch_effects import BranchEffect, BranchEffects
from debugkit.probes.autograd_graph import walk
from debugkit.restore import same_randomness
from debugkit.structure import map_tensors, tensors_in
from debugkit.subject import Subject

_MOST_ALONE = 4
Results = dict[str, Tensor]  # the loss, and every tensor that the model returns


@experiment(BranchEffects, cost=4, requires=("batch",))
def perturb_branches(subject: Subject) -> BranchEffects:
    """One step; where that leaves candidates, up to a dozen passes."""
    calls = _Calls(subject.model)
    before = calls.run(subject)
    candidates = calls.candidates()
    if not candidates:
        return BranchEffects(len(calls.called), (), minimal_floor(subject.model))
    returned = _returned_by(subject, candidates)
    noise = _moved(before, _results(subject))
    floor = max(10 * noise, minimal_floor(subject.model))
    idle = [path for path in _idle(subject, candidates, before, floor) if not calls.works_through_its_parts(path)]
    moved = _moved(before, _results(subject, idle)) if idle else 0.0
    idle = [path for path in idle if not _parts_matter(subject, path, before, floor)]
    again = _again(subject, idle) if idle else 0.0
    if again > floor and len(idle) > 1:
        alone = {path: _again(subject, [path]) for path in idle[:_MOST_ALONE]}
    else:
        alone = dict.fromkeys(idle, again)
    return BranchEffects(
        called=len(calls.called),
        branches=tuple(
            BranchEffect(
                module=path,
                kind=type(module := subject.model.get_submodule(path)).__name__,
                parameters=sum(parameter.numel() for parameter in module.parameters()),
                moved=moved,
                moved_again=alone[path],
                returned_by=returned.get(path),
            )
            for path in alone
        ),
        floor=floor,
    )


class _Calls:
    """One step in the model's own mode, every parameter trainable: who ran, and through whom a gradient came."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.called: dict[str, nn.Module] = {}
        self._differentiable: set[str] = set()
        self._reached: set[str] = set()
        self.effective: set[str] = set()

    def run(self, subject: Subject) -> Results:
        for parameter in self.model.parameters():
            if parameter.is_leaf and parameter.is_floating_point():
                parameter.requires_grad_(True)
        handles = [module.register_forward_hook(self._after(path)) for path, module in self.model.named_modules()]
        try:
            results = _results(subject)
        finally:
            for handle in handles:
                handle.remove()
        generator = torch.Generator().manual_seed(0)
        targets = [tensor for tensor in results.values() if tensor.requires_grad]
        if not targets:
            raise NotExamined("The loss has no graph, so it does not show what it depends on.")
        weights = [torch.randn(t.shape, generator=generator).to(t.device, t.dtype) for t in targets]
        torch.autograd.backward(targets, weights)
        return {path: tensor.detach() for path, tensor in results.items()}

    def candidates(self) -> list[str]:
        """The outermost modules that ran and had no gradient; not an expert that this batch gives no weight."""
        idle = [path for path in self.called if path and path not in self.effective and self._is_a_branch(path)]
        return [path for path in idle if not any(_inside(path, other) for other in idle if other != path)]

    def works_through_its_parts(self, path: str) -> bool:
        """Whether something inside had a gradient: a language model that is called for its cache alone."""
        return any(_inside(other, path) for other in self.effective)

    def _is_a_branch(self, path: str) -> bool:
        parameters = any(True for _ in self.called[path].parameters())
        if not parameters and path not in self._differentiable:
            return False  # a metric, a mask, a rotary table
        parent = path.rpartition(".")[0]
        sibling = any(other.rpartition(".")[0] == parent for other in self.effective if other != path)
        in_a_list = isinstance(self.model.get_submodule(parent), nn.ModuleList | nn.ModuleDict)
        return not (path in self._reached and in_a_list and sibling)

    def _after(self, path: str) -> Any:
        def after(module: nn.Module, _args: Any, output: Any) -> None:
            tensors = [t for _, t in tensors_in(output) if t.is_floating_point() and t.numel()]
            if tensors:
                self.called[path] = module
            for tensor in tensors:
                if tensor.requires_grad:
                    self._differentiable.add(path)
                    tensor.register_hook(lambda gradient: self._note(path, gradient))  # type: ignore[no-untyped-call]

        return after

    def _note(self, path: str, gradient: Tensor) -> None:
        self._reached.add(path)
        if path not in self.effective and bool((gradient != 0).any()):
            self.effective.add(path)


def _results(subject: Subject, perturbed: Iterable[str] = (), seed: int = 0) -> Results:
    """The loss and what the model returns, drawn alike every time; with the outputs of these modules replaced."""
    kept: Results = {}

    def keep(module: object, _inputs: object, output: object) -> None:
        if module is subject.model:
            kept.update((path, t) for path, t in tensors_in(output) if t.ndim > 0 and t.is_floating_point())

    modules = [subject.model.get_submodule(path) for path in perturbed]
    handles = [module.register_forward_hook(_replace(number)) for number, module in enumerate(modules)]
    handles.append(register_module_forward_hook(keep))
    try:
        with same_randomness(seed):
            kept["loss of the step"] = subject.loss()
    finally:
        for handle in handles:
            handle.remove()
    return kept


def _replace(seed: int) -> Any:
    def replace(_module: object, _inputs: object, output: Any) -> Any:
        generator = torch.Generator().manual_seed(seed)
        return map_tensors(output, lambda _, tensor: _noisy(tensor, generator))

    return replace


def _noisy(tensor: Tensor, generator: torch.Generator) -> Tensor:
    finite = tensor.detach()[torch.isfinite(tensor.detach())] if tensor.is_floating_point() else tensor.new_empty(0)
    if finite.numel() == 0:
        return tensor
    size = float(finite.float().abs().mean()) + 0.1
    noise = torch.randn(tensor.shape, generator=generator).to(tensor.device, tensor.dtype)
    return tensor + size * noise


def _moved(before: Results, after: Results) -> float:
    return max(distance(tensor, after[path]) for path, tensor in before.items() if path in after)


def _idle(subject: Subject, candidates: Sequence[str], before: Results, floor: float) -> list[str]:
    """Those that move nothing; where all together move something, the first few are tried alone."""
    if _moved(before, _results(subject, candidates)) <= floor:
        return list(candidates)
    if len(candidates) == 1:
        return []
    return [path for path in candidates[:_MOST_ALONE] if _moved(before, _results(subject, [path])) <= floor]


def _parts_matter(subject: Subject, path: str, before: Results, floor: float) -> bool:
    """Whether the parts act by another way than the output, without a gradient to show it."""
    parts = [f"{path}.{name}" for name, part in subject.model.get_submodule(path).named_modules() if name]
    return bool(parts) and _moved(before, _results(subject, parts)) > floor


def _again(subject: Subject, idle: Sequence[str]) -> float:
    """The largest movement with zero gates open and other draws, and in eval mode."""
    with open_gates(subject.model):
        moved = _moved(_results(subject, seed=1), _results(subject, idle, seed=1))
    with _evaluating(subject.model):
        return max(moved, _moved(_results(subject), _results(subject, idle)))


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training


def _returned_by(subject: Subject, candidates: Sequence[str]) -> dict[str, str]:
    """Candidate → the innermost module round it that returns its output, or something made from it."""
    made: dict[str, set[Any]] = {}
    found: dict[str, str] = {}

    def after(path: str) -> Any:
        def look(_module: object, _inputs: object, output: Any) -> None:
            tensors = [tensor for _, tensor in tensors_in(output)]
            if path in candidates:
                made[path] = {tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None}
                return
            waiting = [one for one in made if one not in found and _inside(one, path)]
            if waiting:
                nodes = walk([t for t in tensors if t.requires_grad], stop_at_zero_gradient=False).nodes
                found.update((one, path) for one in waiting if made[one] & nodes)

        return look

    wanted = [p for p, _ in subject.model.named_modules() if any(_inside(c, p) for c in candidates)]
    handles = [subject.model.get_submodule(path).register_forward_hook(after(path)) for path in wanted]
    try:
        _results(subject)
    finally:
        for handle in handles:
            handle.remove()
        made.clear()
    return found


def _inside(path: str, ancestor: str) -> bool:
    return not ancestor or path == ancestor or path.startswith(f"{ancestor}.")
