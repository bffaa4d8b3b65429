"""One training step, looked at value by value, and repeated operation by operation if it made a NaN or an Inf."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from debugkit.experiments import experiment
from debugkit.monitor.call_frames import FrameRecorder
from debugkit.monitor.module_hooks import ModuleHooks
from debugkit.monitor.op_trace import OpTrace, describe_kind
from debugkit.monitor.step_replay import BackwardTrace, NodePlaces, held_by, is_nonfinite, origin_of
from debugkit.monitor.timeline import Timeline
from debugkit.observations.nonfinite import Nonfinite, NonfiniteOrigin
from debugkit.restore import same_randomness
from debugkit.subject import Subject


@experiment(Nonfinite, cost=3, requires=("batch",))
def trace_nonfinite(subject: Subject) -> Nonfinite:
    """Where the step's first non-finite value and first non-finite gradient are made. Raises NotExamined."""
    with same_randomness():
        forward_finite, bad_gradients, count = _plain_step(subject)
    if not forward_finite:
        origin = _trace_forward(subject)
        if origin is not None:
            return Nonfinite(origin, None)
    if not bad_gradients:
        return Nonfinite(None, None)
    found = _trace_backward(subject)
    kind = "NaN" if "NaN" in bad_gradients.values() else "Inf"
    if found is None:
        note = "no single operation made it: finite gradients overflowed where they are added up"
        found = NonfiniteOrigin("backward", kind, "unlocated", note=note)  # type: ignore[arg-type]
    return Nonfinite(None, dataclasses.replace(found, parameters=tuple(bad_gradients), parameter_count=count))


def _plain_step(subject: Subject) -> tuple[bool, dict[str, str], int]:
    """Run the step: is the forward pass free of NaN and Inf, which gradients are not, and of how many."""
    timeline = Timeline()
    subject.model.zero_grad()
    with ModuleHooks(subject.model, timeline=timeline):
        loss = subject.loss()
    timeline.record("loss", "loss", loss)
    if loss.requires_grad:
        loss.backward()  # type: ignore[no-untyped-call]
    ranges, _ = timeline.read()
    finite = not any(seen.nonfinite and (seen.nonfinite != "-Inf" or seen.entry.kind == "loss") for seen in ranges)
    gradients = {name: p.grad for name, p in subject.model.named_parameters() if p.grad is not None}
    kinds = {name: describe_kind(_dense(gradient)) for name, gradient in gradients.items()}
    bad = {name: "NaN" if kind == "NaN" else "Inf" for name, kind in kinds.items() if kind is not None}
    return finite, bad, len(gradients)


def _trace_forward(subject: Subject) -> NonfiniteOrigin | None:
    held = held_by(subject.model, subject.batch)
    if held is not None:
        return held
    trace = OpTrace()
    with (
        same_randomness(),
        FrameRecorder(subject.model, running=trace.modules, stop_at=is_nonfinite) as recorder,
        trace,
    ):
        loss = subject.loss()
    operation = trace.first or (trace.first_minus_inf if describe_kind(loss) else None)
    return None if operation is None else origin_of(operation, tuple(recorder.frames))


def _trace_backward(subject: Subject) -> NonfiniteOrigin | None:
    places = NodePlaces()
    trace = BackwardTrace(places)
    with same_randomness(), torch.autograd.set_detect_anomaly(True, check_nan=False):
        with places.following(subject.model):
            loss = subject.loss()
        with trace.hooked([loss]):
            loss.backward()  # type: ignore[no-untyped-call]
    return trace.origin


def _dense(gradient: Tensor) -> Tensor:
    return gradient._values() if gradient.is_sparse else gradient
