"""Finds lines that turn a tensor with a gradient into something without one: detach, item, numpy, no_grad, argmax…"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode

from debugkit._torch_private import SET_GRAD_ENABLED, leave
from debugkit.finding import SourceLine
from debugkit.frames import is_users
from debugkit.measurements.autograd_graph.measure import gradient_node
from debugkit.measurements.graph_cut import REENTRANT
from debugkit.measurements.graph_cut.detachments import Detachment, Detachments
from debugkit.probe import Probe
from debugkit.recorders.function_calls import property_read_by
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_TO_PYTHON = frozenset({"item", "tolist", "numpy", "__float__", "__int__", "__index__", "__complex__", "__array__"})
# Their outputs depend on a shape or dtype, not on a value.
_METADATA_ONLY = frozenset({"new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided"})
# PyTorch passes a gradient of zero through these, which is equivalent to none.
_STEPS = frozenset({"round", "floor", "ceil", "trunc", "sign", "sgn", "round_", "floor_", "ceil_", "trunc_", "sign_"})

_CHECKPOINT_FILE = torch.utils.checkpoint.__file__


@dataclass(frozen=True)
class Site:
    """One operation at one line; the same line in a loop is one site."""

    operation: str
    line: SourceLine | None
    caller: SourceLine | None


class GradientStops(TorchFunctionMode):
    """Calls `on_stop(site, nodes, output)` at each operation that stops a gradient, and returns its result.

    It intercepts PyTorch's Python API, that is every line of a model but none of PyTorch's internals.
    """

    def __init__(self) -> None:
        super().__init__()
        self.consumed: set[int] = set()  # id() of the parameters an operation took
        self._no_grad_site: Site | None = None

    def on_stop(self, site: Site, nodes: list[Node], output: Any) -> Any:
        """Called when `output`, without a gradient, was computed from tensors whose gradients would reach `nodes`."""
        raise NotImplementedError

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is SET_GRAD_ENABLED:
            self._record_grad_mode(bool(args[0]))
            return func(*args, **kwargs)
        sources = [t for _, t in tensors_in((args, kwargs)) if t.requires_grad]
        if not sources:
            return func(*args, **kwargs)
        self.consumed.update(id(t) for t in sources if isinstance(t, nn.Parameter))
        operation = _operation(func)
        # detach_ removes the tensor's node in place, so the node must be read first.
        nodes = _nodes(sources) if operation == "detach_" else []
        output = func(*args, **kwargs)
        if operation is None or not (nodes or kwargs.get("rounding_mode") or _stops(operation, sources, output)):
            return output
        return self.on_stop(self._site(operation), nodes or _nodes(sources), output)

    def _record_grad_mode(self, enable: bool) -> None:
        if enable:
            self._no_grad_site = None
        elif torch.is_grad_enabled():
            self._no_grad_site = _site_here("no_grad")

    def _site(self, operation: str) -> Site:
        if torch.is_grad_enabled() or operation in _TO_PYTHON:
            return _site_here(operation)
        return self._no_grad_site or _site_of_hidden_no_grad()


@dataclass
class Stop:
    """One stopped gradient. It holds graph nodes, so it must not outlive the probe."""

    site: Site
    nodes: list[Node]


class StopRecorder(GradientStops):
    """Keeps every stop with its graph nodes for as long as the recorder is alive."""

    def __init__(self) -> None:
        super().__init__()
        self.stops: list[Stop] = []

    def on_stop(self, site: Site, nodes: list[Node], output: Any) -> Any:
        self.stops.append(Stop(site, nodes))
        return output


class DetachmentProbe(Probe[Detachments]):
    """Counts for each line how often it stops a gradient.

    >>> weight = torch.ones(3, requires_grad=True)
    >>> with DetachmentProbe(TrainingSetup.of(nn.Identity())) as probe:
    ...     copy = weight.detach()
    >>> probe.observation.detachments[0].operation
    'detach'
    """

    watch_steps = 1

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._mode = _SiteCounter()

    def __enter__(self) -> Self:
        self._mode.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        leave(self._mode)

    @property
    def observation(self) -> Detachments:
        """Every stop since the probe was entered."""
        return Detachments(
            tuple(Detachment(site.operation, site.line, site.caller, n) for site, n in self._mode.counts.items())
        )


class _SiteCounter(GradientStops):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[Site] = Counter()

    def on_stop(self, site: Site, _nodes: list[Node], output: Any) -> Any:
        self.counts[site] += 1
        return output


def _operation(func: Callable[..., Any]) -> str | None:
    """The usual name of `func`, or None if no value passes through it."""
    read = property_read_by(func)
    if read is not None:
        return read if read == "data" else None  # no other returns the values without their graph
    name = getattr(func, "__name__", "")
    if name.endswith("_like") or name in _METADATA_ONLY or name.startswith("is_"):
        return None
    return name


def _stops(operation: str, sources: list[Tensor], output: Any) -> bool:
    if operation in _TO_PYTHON or operation in _STEPS:
        return True
    taken = {id(t) for t in sources}
    return any(not t.requires_grad and id(t) not in taken for _, t in tensors_in(output))


def _nodes(tensors: list[Tensor]) -> list[Node]:
    return [node for tensor in tensors if (node := gradient_node(tensor)) is not None]


def _site_here(operation: str, frame: FrameType | None = None) -> Site:
    """The line running now and the line that called its function."""
    lines: list[SourceLine] = []
    current: FrameType | None = frame or sys._getframe(1)
    while current is not None and len(lines) < 2:
        if is_users(current.f_code.co_filename):
            lines.append(SourceLine(current.f_code.co_filename, current.f_lineno, current.f_code.co_name))
        current = current.f_back
    line, caller = (*lines, None, None)[:2]
    return Site(operation, line, caller)


def _site_of_hidden_no_grad() -> Site:
    """The site if no Python line switched gradients off: inference_mode, or the forward of a custom Function."""
    if torch.is_inference_mode_enabled():
        return _site_here("inference_mode")
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "forward" and frame.f_code.co_filename == _CHECKPOINT_FILE:
            return _site_here(REENTRANT, frame)
        frame = frame.f_back
    return _site_here("custom autograd Function")
