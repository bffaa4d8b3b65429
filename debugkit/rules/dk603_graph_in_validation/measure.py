"""Record the calls of the model in eval mode: whether they built a graph, and whether a backward ever used it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import nn

from debugkit._torch_private import in_backward, is_compiled
from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.measurements.autograd_graph.measure import node_metadata
from debugkit.module_paths import plain_path
from debugkit.probe import Probe
from debugkit.recorders.module_calls import ModuleCalls, Outputs
from debugkit.recorders.patches import Patches
from debugkit.rules.dk603_graph_in_validation import EvaluationGraphs, UntrainedForwards
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_MOST = 4096
_MANY = 16  # calls in a step: later only the modules that were called are hooked, and only in eval mode
_LEARNING = 8  # steps in which it is seen which modules are called
_KEY = "debugkit.untrained_forwards"


class _Token:
    """Stored in the metadata of a graph node, so that it is freed together with the graph."""

    __slots__ = ("__weakref__",)


@dataclass
class _Call:
    module: str
    at: SourceLine | None
    steps: int = 0  # steps that have ended since
    used: bool = False
    graphs: list[weakref.ref[_Token]] = field(default_factory=list)


class EvaluationGraphsProbe(Probe[EvaluationGraphs]):
    """Observes the whole run. Only the outermost call counts: of the model, or of a submodule that is called directly.

    A graph counts as wasted after one more complete step, or at the end of the loop; its backward may come until then.
    """

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        parts = ((plain_path(path), part) for path, part in _parts("", setup.model))
        self._parts = dict(parts)
        self._calls: ModuleCalls | Outputs = self._around(self._parts.items())
        self._patches = Patches()
        self._steps = self._called = 0
        self._entries = {""}  # the paths of the modules that the loop called
        self._depth = 0
        self._at: SourceLine | None = None
        self._pending: list[_Call] = []
        self._wasted: list[_Call] = []
        self._forwards = 0

    def __enter__(self) -> Self:
        self._calls.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.__exit__(None, None, None)
        self._calls.remove()
        self._pending.clear()

    def _mode_is_set(self, module: nn.Module, *_: Any, **__: Any) -> None:
        """`module.train()` or `.eval()` was called: the model has hooks only in eval mode."""
        if module is not self.setup.model:
            return
        self._calls.remove()
        self._depth = 0
        if not module.training:
            self._calls.__enter__()

    def end_step(self, _step: int, /) -> None:
        self._steps += 1
        if self._steps == _LEARNING and self._called > _MANY * _LEARNING and not is_compiled(self.setup.model):
            self._calls.remove()
            called = [(path, self._parts[path]) for path in self._entries]
            # Each call of the only module is an outermost one, so its output is enough.
            self._calls = Outputs(*called[0], self._alone) if len(called) == 1 else self._around(called)
            self._patches.__enter__().around_overrides(nn.Module, "train", after=self._mode_is_set)
            self._mode_is_set(self.setup.model)
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

    def _before(self, path: str, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return  # torch.compile would trace the code below into the model
        learning = self._steps < _LEARNING
        if self.setup.model.training and not learning:
            return
        if self._depth == 0:
            if learning:
                self._called += 1
                self._entries.add(path)
            if torch.is_grad_enabled() and not self.setup.model.training:
                self._at = user_line()
        self._depth += 1

    def _after(self, path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or (self.setup.model.training and self._steps >= _LEARNING):
            return
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and not self.setup.model.training and not in_backward():
            self._forwards += 1
            if torch.is_grad_enabled() and len(self._pending) < _MOST:
                self._follow(_Call(path, self._at), output)

    def _around(self, modules: Iterable[tuple[str, nn.Module]]) -> ModuleCalls:
        return ModuleCalls(modules, before=self._before, after=self._after, also_raised=True)

    def _alone(self, path: str, output: Any) -> None:
        if self.setup.model.training or torch.compiler.is_compiling() or in_backward():
            return
        self._forwards += 1
        if torch.is_grad_enabled() and len(self._pending) < _MOST:
            self._follow(_Call(path, user_line()), output)

    def _follow(self, call: _Call, output: Any) -> None:
        def used(_gradients: Any) -> None:
            call.used = True

        for _, tensor in tensors_in(output):
            node = tensor.grad_fn
            if node is not None:
                token = _Token()
                node_metadata(node)[_KEY] = token
                call.graphs.append(weakref.ref(token))
                node.register_prehook(used)
        if call.graphs:
            self._pending.append(call)


def _parts(path: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The model, and the submodules that its methods may call directly: its children, also those in containers."""
    yield path, module
    waiting = [(f"{path}.{name}".lstrip("."), child) for name, child in module.named_children()]
    for child_path, child in waiting:
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            waiting += [(f"{child_path}.{name}", inner) for name, inner in child.named_children()]
        else:
            yield child_path, child
