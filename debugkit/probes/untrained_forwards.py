"""Sees the model's calls in evaluation mode: whether they recorded a graph, and whether a backward ever came."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import nn

from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.observations.untrained_forwards import EvaluationGraphs, UntrainedForwards
from debugkit.probes import Probe, probe
from debugkit.structure import tensors_in
from debugkit.subject import Subject, plain_path

_MOST = 4096
_KEY = "debugkit.untrained_forwards"


class _Token:
    """Lies in the graph: it goes with it."""

    __slots__ = ("__weakref__",)


@dataclass
class _Call:
    module: str
    at: SourceLine | None
    steps: int = 0  # that ended since
    used: bool = False
    graphs: list[weakref.ref[_Token]] = field(default_factory=list)


@probe(EvaluationGraphs)
class EvaluationGraphsProbe(Probe[EvaluationGraphs]):
    """Tells of the whole run. Only the outermost call counts: of the model, or of its part where that is called alone.

    A graph counts as wasted once a whole further step, or the loop, has ended: until then its backward may still come.
    """

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._handles: list[Any] = []
        self._depth = 0
        self._at: SourceLine | None = None
        self._pending: list[_Call] = []
        self._wasted: list[_Call] = []
        self._forwards = 0

    def __enter__(self) -> Self:
        for path, module in _parts("", self.subject.model):
            self._handles.append(module.register_forward_pre_hook(self._before))
            self._handles.append(module.register_forward_hook(self._after(plain_path(path)), always_call=True))
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._pending.clear()

    def end_step(self, _step: int, /) -> None:
        waiting: list[_Call] = []
        for call in self._pending:
            call.steps += 1
            if call.used:
                continue
            (waiting if call.steps < 2 else self._wasted).append(call)
        self._pending = waiting
        del self._wasted[:-_MOST]

    def loop_ended(self) -> None:
        self._wasted += [call for call in self._pending if not call.used]
        self._pending = []

    @property
    def observation(self) -> EvaluationGraphs:
        lines: dict[tuple[str, SourceLine | None], list[_Call]] = {}
        for call in self._wasted:
            lines.setdefault((call.module, call.at), []).append(call)
        return EvaluationGraphs(
            self._forwards,
            tuple(
                UntrainedForwards(module, at, len(calls), sum(any(g() for g in call.graphs) for call in calls))
                for (module, at), calls in lines.items()
            ),
        )

    def _before(self, _module: nn.Module, _args: Any) -> None:
        if torch.compiler.is_compiling():
            return  # torch.compile would trace what follows into the model
        if self._depth == 0:
            self._at = user_line()
        self._depth += 1

    def _after(self, path: str) -> Any:
        def after(_module: nn.Module, _args: Any, output: Any) -> None:
            if torch.compiler.is_compiling():
                return
            self._depth = max(0, self._depth - 1)
            in_backward = torch._C._current_graph_task_id() != -1  # activation checkpointing runs it again
            if self._depth == 0 and not self.subject.model.training and not in_backward:
                self._forwards += 1
                if torch.is_grad_enabled() and len(self._pending) < _MOST:
                    self._follow(_Call(path, self._at), output)

        return after

    def _follow(self, call: _Call, output: Any) -> None:
        def used(_gradients: Any) -> None:
            call.used = True

        for _, tensor in tensors_in(output):
            node = tensor.grad_fn
            if node is not None:
                token = _Token()
                metadata: Any = node.metadata  # declared as a method, and is a dict
                metadata[_KEY] = token
                call.graphs.append(weakref.ref(token))
                node.register_prehook(used)
        if call.graphs:
            self._pending.append(call)


def _parts(path: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The model and the parts that one of its methods may call without it: children, through containers."""
    yield path, module
    waiting = [(f"{path}.{name}".lstrip("."), child) for name, child in module.named_children()]
    for child_path, child in waiting:
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            waiting += [(f"{child_path}.{name}", inner) for name, inner in child.named_children()]
        else:
            yield child_path, child
