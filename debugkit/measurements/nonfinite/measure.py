"""Runs one training step and checks its values, and repeats it operation by operation if it made a NaN or an Inf."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from debugkit._torch_private import parts_of_sparse
from debugkit.randomness import same_randomness
from debugkit.recorders.module_calls import every_call
from debugkit.recorders.output_ranges import ModuleHooks
from debugkit.recorders.timeline import Timeline, describe_kind
from debugkit.setup import TrainingSetup
from debugkit.step_replay.call_frames import FrameRecorder
from debugkit.step_replay.nonfinite import Nonfinite, NonfiniteOrigin
from debugkit.step_replay.op_trace import HALF, OpTrace
from debugkit.step_replay.replay import BackwardTrace, NodePlaces, held_by, is_nonfinite, origin_of
from debugkit.structure import tensors_in


def trace_nonfinite(setup: TrainingSetup) -> Nonfinite:
    """The origins of the step's first non-finite value and first non-finite gradient. Raises NotExamined."""
    with same_randomness():
        forward_finite, bad_gradients, count, in_half = _plain_step(setup)
    if not forward_finite:
        origin = _trace_forward(setup)
        if origin is not None:
            return Nonfinite(origin, None)
    if not bad_gradients:
        return Nonfinite(_overflow(setup) if in_half else None, None)
    found = _trace_backward(setup)
    kind = "NaN" if "NaN" in bad_gradients.values() else "Inf"
    if found is None:
        note = "no single operation made it: finite gradients overflowed when they were added up"
        found = NonfiniteOrigin("backward", kind, "unlocated", note=note)  # type: ignore[arg-type]
    return Nonfinite(None, dataclasses.replace(found, parameters=tuple(bad_gradients), parameter_count=count))


def _overflow(setup: TrainingSetup) -> NonfiniteOrigin | None:
    """An operation whose result exceeds the range of 16 bits, although what the modules return is finite."""
    trace = OpTrace(overflows=True)
    with same_randomness(), FrameRecorder(setup.model, running=trace.modules, stop_at=is_nonfinite) as recorder, trace:
        setup.loss()
    return None if trace.first is None else origin_of(trace.first, tuple(recorder.frames))


def _plain_step(setup: TrainingSetup) -> tuple[bool, dict[str, str], int, bool]:
    """Run the step: whether the forward pass is finite, which gradients are not, how many there are, and whether
    a module computes in 16 bits."""
    timeline = Timeline()
    setup.model.zero_grad()
    kinds_of_outputs: set[torch.dtype] = set()

    def look(_module: nn.Module, output: Any) -> None:
        kinds_of_outputs.update(tensor.dtype for _, tensor in tensors_in(output))

    with ModuleHooks(setup.model, timeline=timeline), every_call(look):
        loss = setup.loss()
    timeline.record("loss", "loss", loss)
    if loss.requires_grad:
        loss.backward()  # type: ignore[no-untyped-call]
    ranges, _ = timeline.read()
    finite = not any(seen.nonfinite and (seen.nonfinite != "-Inf" or seen.entry.kind == "loss") for seen in ranges)
    gradients = {name: p.grad for name, p in setup.model.named_parameters() if p.grad is not None}
    kinds = {name: describe_kind(_dense(gradient)) for name, gradient in gradients.items()}
    bad = {name: "NaN" if kind == "NaN" else "Inf" for name, kind in kinds.items() if kind is not None}
    return finite, bad, len(gradients), bool(kinds_of_outputs & HALF)


def _trace_forward(setup: TrainingSetup) -> NonfiniteOrigin | None:
    held = held_by(setup.model, setup.batch)
    if held is not None:
        return held
    trace = OpTrace()
    with (
        same_randomness(),
        FrameRecorder(setup.model, running=trace.modules, stop_at=is_nonfinite) as recorder,
        trace,
    ):
        loss = setup.loss()
    operation = trace.first or (trace.first_minus_inf if describe_kind(loss) else None)
    return None if operation is None else origin_of(operation, tuple(recorder.frames))


def _trace_backward(setup: TrainingSetup) -> NonfiniteOrigin | None:
    places = NodePlaces()
    trace = BackwardTrace(places)
    with same_randomness(), torch.autograd.set_detect_anomaly(True, check_nan=False):
        with places.following(setup.model):
            loss = setup.loss()
        with trace.hooked([loss]):
            loss.backward()  # type: ignore[no-untyped-call]
    return trace.origin


def _dense(gradient: Tensor) -> Tensor:
    return parts_of_sparse(gradient)[1] if gradient.is_sparse else gradient
