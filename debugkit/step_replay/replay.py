"""Repeat one recorded module call operation by operation, to find the one that produced the first NaN or Inf."""

from __future__ import annotations

import contextlib
import linecache
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from debugkit._torch_private import dynamo_is_imported, inside_compiled
from debugkit.finding import SourceLine
from debugkit.frames import is_users
from debugkit.module_paths import plain_path
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.recorders.timeline import describe_kind
from debugkit.step_replay.call_frames import FrameRecorder
from debugkit.step_replay.calls import ModuleCall
from debugkit.step_replay.nonfinite import Frame, NonfiniteOrigin
from debugkit.step_replay.op_trace import Operation, OpTrace
from debugkit.structure import tensors_in


class CannotReplay(Exception):  # noqa: N818 - it reports a limit, not an error
    """The call cannot be repeated; the message is the reason, in one sentence."""


def trace_forward(call: ModuleCall) -> NonfiniteOrigin | None:
    """The first non-finite value of `call`'s forward pass, or None if all are finite or intended.

    Raises CannotReplay.
    """
    model = replayable(call)
    if (given := held_by(model, (call.args, call.kwargs), call.path)) is not None:
        return given
    trace = OpTrace()
    recorder = FrameRecorder(model, prefix=_prefix(call), running=trace.modules, stop_at=is_nonfinite)
    with _guarded(), call.as_it_was(), recorder, _eager(), trace:
        args, kwargs = call.fresh_arguments()
        output = model(*args, **kwargs)
    operation = trace.first
    if operation is None and any(describe_kind(t) and t.numel() == 1 for _, t in tensors_in(output)):
        operation = trace.first_minus_inf  # a loss of -Inf
    return None if operation is None else origin_of(operation, tuple(recorder.frames))


def trace_backward(call: ModuleCall) -> NonfiniteOrigin | None:
    """The autograd node of `call` that first produced a non-finite gradient from finite ones. Raises CannotReplay."""
    model = replayable(call)
    places = NodePlaces()
    trace = BackwardTrace(places)
    with _guarded(), call.as_it_was(), torch.enable_grad(), torch.autograd.set_detect_anomaly(True, check_nan=False):
        args, kwargs = call.fresh_arguments()
        with _eager(), places.following(model, _prefix(call)):
            output = model(*args, **kwargs)
        outputs = [tensor for _, tensor in tensors_in(output)]
        pairs = [(outputs[i], gradient) for i, gradient in call.output_gradients.items() if i < len(outputs)]
        pairs = [(out, gradient) for out, gradient in pairs if out.grad_fn is not None]
        if any(describe_kind(gradient) for _, gradient in pairs) or not pairs:
            return None
        with trace.hooked([out for out, _ in pairs]):
            _run_backward(model, (args, kwargs), pairs)
    return trace.origin


def replayable(call: ModuleCall) -> nn.Module:
    """The module to run, without compiled and DistributedDataParallel wrappers. Raises CannotReplay."""
    if call.changed_since():
        raise CannotReplay("an input tensor was changed in place after the model used it")
    model = unwrapped(call.module)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        for part in model.modules():
            if isinstance(part, nn.SyncBatchNorm) or type(part).__name__.startswith(("FSDP", "FullySharded")):
                raise CannotReplay(f"{type(part).__name__} communicates, but other ranks do not repeat the step")
    return model


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside compiled and DistributedDataParallel wrappers."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif (inner := inside_compiled(model)) is not None:
            model = inner
        else:
            return model


def origin_of(operation: Operation, frames: tuple[Frame, ...] = ()) -> NonfiniteOrigin:
    """The observation for a forward operation."""
    return NonfiniteOrigin(
        phase="forward",
        kind=operation.kind,  # type: ignore[arg-type]
        source="operation",
        operation=operation.name,
        inputs=operation.inputs,
        inputs_finite=operation.inputs_finite,
        module=operation.module,
        at=operation.at,
        code=operation.code,
        frames=frames,
    )


class BackwardTrace:
    """Hooks on every node in the graph of some tensors; `.origin` is the first to produce a non-finite gradient."""

    def __init__(self, places: NodePlaces) -> None:
        self.origin: NonfiniteOrigin | None = None
        self._places = places

    @contextlib.contextmanager
    def hooked(self, outputs: Sequence[Tensor]) -> Iterator[None]:
        """Hook the nodes in the graph of `outputs` while the block runs."""
        handles = [node.register_hook(self._hook_for(node)) for node in _nodes(outputs)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook_for(self, node: Any) -> Callable[..., None]:
        name = node.name()

        def after(grad_inputs: Sequence[Tensor | None], grad_outputs: Sequence[Tensor | None]) -> None:
            if self.origin is not None:
                return
            came, made = _worst(grad_outputs), _worst(grad_inputs)
            if came is not None:  # earlier nodes gave finite gradients, whose sum overflowed
                self.origin = self._origin(name, node, came, "accumulation")
            elif made is not None:
                self.origin = self._origin(name, node, made, "operation")

        return after

    def _origin(self, name: str, node: Any, kind: str, source: Any) -> NonfiniteOrigin:
        at = forward_line(node)
        return NonfiniteOrigin(
            phase="backward",
            kind=kind,  # type: ignore[arg-type]
            source=source,
            operation=name,
            module=self._places.module_of(node),
            at=at,
            code=linecache.getline(at.file, at.line).strip() if at else "",
        )


class NodePlaces:
    """The module whose forward built a node. The innermost module counts, because its forward ends first."""

    def __init__(self) -> None:
        self._module: dict[Any, str] = {}

    def module_of(self, node: Any) -> str | None:
        return self._module.get(node)

    @contextlib.contextmanager
    def following(self, model: nn.Module, prefix: str = "") -> Iterator[None]:
        named = ((prefix + path, module) for path, module in model.named_modules())
        with ModuleCalls(named, after=self._after):
            yield

    def _after(self, path: str, _module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        for node in _nodes([tensor for _, tensor in tensors_in(output)], known=self._module):
            self._module[node] = path


def forward_line(node: Any) -> SourceLine | None:
    """The user's line that built a node, as recorded by anomaly mode."""
    for entry in reversed(node.metadata.get("traceback_", [])):
        found = re.match(r'\s*File "(.+)", line (\d+), in (.+)', entry)
        if found and is_users(found[1]):
            return SourceLine(found[1], int(found[2]), found[3].strip())
    return None


def _nodes(tensors: Sequence[Tensor], known: Any = ()) -> list[Any]:
    waiting = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    met: dict[Any, None] = {}
    while waiting:
        node = waiting.pop()
        if node in met or node in known:
            continue
        met[node] = None
        waiting.extend(following for following, _ in node.next_functions if following is not None)
    return list(met)


def _run_backward(model: nn.Module, arguments: Any, pairs: list[tuple[Tensor, Tensor]]) -> None:
    leaves: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    leaves += [t for _, t in tensors_in(arguments) if t.requires_grad and t.is_leaf]
    outputs, gradients = [out for out, _ in pairs], [gradient for _, gradient in pairs]
    torch.autograd.grad(outputs, leaves, gradients, allow_unused=True)


def held_by(model: nn.Module, given: Any, path: str = "") -> NonfiniteOrigin | None:
    """A NaN or Inf in the inputs of a call, or in the parameters or buffers of the model. A -Inf may be a mask."""
    for name, tensor in tensors_in(given):
        if (kind := describe_kind(tensor)) in ("NaN", "Inf"):
            return _held("input", _input_name(name), kind, path)
    prefix = f"{path}." if path else ""
    for name, parameter in model.named_parameters():
        if (kind := describe_kind(parameter)) in ("NaN", "Inf"):
            module, _, leaf = (prefix + name).rpartition(".")
            return _held("parameter", leaf, kind, module)
    for name, buffer in model.named_buffers():
        if describe_kind(buffer) == "NaN":
            module, _, leaf = (prefix + name).rpartition(".")
            return _held("parameter", leaf, "NaN", module)
    return None


def _input_name(path: str) -> str:
    """A readable name for `1.pixel_values` (a keyword), `0.2` (the third argument) or a batch that is one tensor."""
    head, _, rest = path.partition(".")
    if head == "1" and rest:
        return rest
    return f"argument {rest}" if head == "0" and rest else f"input {path}" if path else "the input"


def _held(source: Any, name: str, kind: Any, module: str) -> NonfiniteOrigin:
    return NonfiniteOrigin(
        "forward", kind, source, operation=name, inputs=kind, inputs_finite=False, module=plain_path(module)
    )


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """Turn every exception of the repetition into CannotReplay, so that none reaches the training loop."""
    try:
        yield
    except Exception as error:
        raise CannotReplay(f"repeating the step raised {type(error).__name__}: {str(error)[:200]}") from error


@contextlib.contextmanager
def _eager() -> Iterator[None]:
    """Run the Python code of compiled submodules, so that single operations can be inspected."""
    if dynamo_is_imported():
        with torch.compiler.set_stance("force_eager"):
            yield
    else:
        yield


def _prefix(call: ModuleCall) -> str:
    return f"{call.path}." if call.path else ""


def is_nonfinite(frame: Frame) -> bool:
    outputs = [extremes for extremes in frame.tensors if extremes.name.startswith("output")]
    return any(math.isnan(extremes.maximum) or math.isinf(extremes.maximum) for extremes in outputs)


def _worst(gradients: Sequence[Tensor | None]) -> str | None:
    kinds = [describe_kind(g) for g in gradients if g is not None]
    return next((kind if kind == "NaN" else "Inf" for kind in ("NaN", "Inf", "-Inf") if kind in kinds), None)
