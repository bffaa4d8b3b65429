"""Record which linear layer receives the tensor that another returned, and count who else reads that tensor."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import Node

from debugkit._torch_private import in_backward, sequence_number, version_of
from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.measurements.autograd_graph.graph_probe import GraphProbe
from debugkit.measurements.autograd_graph.measure import walk
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.rules.dk116_linear_stack import LinearStack, LinearStacks
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_RESHAPES = (
    "View",
    "UnsafeView",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Permute",
    "Clone",
    "ToCopy",
    "Flatten",
)
_POOLING = (
    "Mean",
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "AvgPool",
    "MaxPool",
    "Amax",
    "Max",
    "Select",
    "Slice",
    "Index",
)


@dataclass
class _Output:
    """What a linear layer returned in one call, until the graph was walked."""

    path: str
    tensor: weakref.ref[Tensor]
    version: int
    node: int  # the sequence number of its grad_fn
    reader: str | None = None  # the linear layer that received it
    at: SourceLine | None = None
    kept: bool = False  # returned by a module that ended later, or handed on by another one


class LinearStackProbe(GraphProbe[LinearStacks]):
    """Keeps weak references to outputs, and none after backward."""

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup, ModuleCalls(setup.named_modules, before=self._before, after=self._after))
        self._modules = dict(setup.named_modules)
        self._outputs: list[_Output] = []
        self._alive: dict[int, _Output] = {}  # by id() of the tensor
        self._counts: Counter[str] = Counter()  # calls of each layer
        self._pooled: set[str] = set()

    def before_backward(self, losses: Sequence[Tensor], /) -> None:
        readers = Counter(
            sequence_number(following)
            for node in walk(losses).nodes
            for following, _ in node.next_functions
            if following is not None
        )
        following = dict(self._followers(readers))
        first = [path for path in following if path not in {reader for reader, _ in following.values()}]
        stacks = tuple(self._stack(path, following) for path in first)
        self.seen = LinearStacks(len(self._counts), stacks)
        self.forget()

    def forget(self) -> None:
        self._outputs.clear()
        self._alive.clear()
        self._counts.clear()

    def _before(self, path: str, module: nn.Module, args: Any, _kwargs: Any) -> None:
        if not _is_linear(module) or in_backward():
            return
        self._counts[path] += 1
        if not args or not isinstance(args[0], Tensor):
            return
        output = self._output_at(args[0])
        if output is not None:
            output.kept = output.kept or output.reader is not None or output.version != version_of(args[0])
            output.reader, output.at = path, user_line()
        elif _is_pooled(args[0].grad_fn):
            self._pooled.add(path)

    def _after(self, path: str, module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        if in_backward():
            return
        if _is_linear(module):
            if isinstance(output, Tensor) and output.grad_fn is not None:
                made = _Output(path, weakref.ref(output), version_of(output), sequence_number(output.grad_fn))
                self._outputs.append(made)
                self._alive[id(output)] = made
            return
        hands_on = not any(True for _ in module.children()) and not isinstance(module, nn.Identity)
        for _, tensor in tensors_in(output):
            known = self._output_at(tensor)
            if known is not None:
                known.kept = known.kept or hands_on or known.reader is not None

    def _output_at(self, tensor: Tensor) -> _Output | None:
        known = self._alive.get(id(tensor))
        return known if known is not None and known.tensor() is tensor else None

    def _followers(self, readers: Counter[int]) -> Iterator[tuple[str, tuple[str, SourceLine | None]]]:
        """Each layer whose every output is read by one other layer only, which reads nothing else."""
        by_path: dict[str, list[_Output]] = {}
        for output in self._outputs:
            by_path.setdefault(output.path, []).append(output)
        for path, outputs in by_path.items():
            reader = outputs[0].reader
            if reader is None or reader == path or not self._counts[path] == len(outputs) == self._counts[reader]:
                continue
            if all(output.reader == reader and not output.kept and readers[output.node] == 1 for output in outputs):
                yield path, (reader, outputs[0].at)

    def _stack(self, path: str, following: dict[str, tuple[str, SourceLine | None]]) -> LinearStack:
        paths, at = [path], following[path][1]
        while paths[-1] in following:
            paths.append(following[paths[-1]][0])
        modules = [self._modules[one] for one in paths]
        return LinearStack(
            modules=tuple(paths),
            kinds=tuple(_kind(module) for module in modules),
            widths=(_sizes(modules[0])[0], *(_sizes(module)[1] for module in modules)),
            all_train=all(module.weight.requires_grad for module in modules),
            after_pooling=path in self._pooled,
            at=at,
        )


def _is_linear(module: nn.Module) -> bool:
    """Only the classes themselves: a subclass may compute anything."""
    if isinstance(module, _CONVOLUTIONS) and type(module) in _CONVOLUTIONS:
        overlap = all(step == 1 or step < size for step, size in zip(module.stride, module.kernel_size, strict=True))
        return overlap and module.groups == 1
    return type(module) is nn.Linear


def _kind(module: nn.Module) -> str:
    kernel = getattr(module, "kernel_size", "")
    return f"{type(module).__name__}{kernel}"


def _sizes(module: Any) -> tuple[int, int]:
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    return module.in_channels, module.out_channels


def _is_pooled(node: Node | None) -> bool:
    """Whether the tensor is one position, or the mean of several."""
    while node is not None and node.name().startswith(_RESHAPES):
        node = node.next_functions[0][0] if node.next_functions else None
    return node is not None and node.name().startswith(_POOLING)
