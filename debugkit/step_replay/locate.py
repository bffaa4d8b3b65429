"""Find the place where the first NaN or Inf of a step was produced, from the ranges of its results."""

from __future__ import annotations

import dataclasses
import linecache
from collections.abc import Iterable, Sequence

from debugkit.recorders.timeline import Entry, Range
from debugkit.step_replay.calls import ModuleCall
from debugkit.step_replay.nonfinite import NonfiniteOrigin
from debugkit.step_replay.op_trace import PLACES
from debugkit.step_replay.replay import CannotReplay, trace_backward, trace_forward

Exempt = set[str]
"""Modules whose output contains an Inf on purpose: detected once, and ignored afterwards."""


def forward_origin(ranges: Sequence[Range], calls: Sequence[ModuleCall], exempt: Exempt) -> NonfiniteOrigin | None:
    """The first non-finite value of the forward pass; a -Inf counts only if it reaches a loss."""
    for position, seen in enumerate(ranges):
        kind, entry = seen.nonfinite, seen.entry
        if kind is None or entry.kind not in ("output", "op", "loss") or entry.name in exempt:
            continue
        if kind == "-Inf" and entry.kind != "loss":
            continue
        if kind == "Inf" and entry.kind == "op" and _was_put_in_place(ranges[: position + 1]):
            continue
        origin = (
            _replayed(entry, kind, calls, exempt)
            if entry.kind == "output"
            else _in_the_loop(ranges[:position], entry, kind)
        )
        if origin is not None:
            return origin
    return None


def _was_put_in_place(ranges: Sequence[Range]) -> bool:
    """Whether an operation of the loop wrote an Inf on purpose: the next one takes it away, or the loss shows it."""
    return any(seen.nonfinite and seen.entry.kind == "op" and seen.entry.name in PLACES for seen in ranges)


def gradient_origin(
    ranges: Sequence[Range], calls: Sequence[ModuleCall], kind: str, parameters: Sequence[str], count: int
) -> NonfiniteOrigin:
    """Where the gradients of `parameters`, out of `count`, became non-finite; `kind` is what they contain now."""
    origin = _loop_gradient(ranges)
    notes: list[str] = []
    for call in () if origin is not None else calls:
        if not call.output_gradients:
            continue
        try:
            if (origin := trace_backward(call)) is not None:
                break
        except CannotReplay as limit:
            notes.append(str(limit))
    if origin is None:
        why = notes[0] if notes else "no single operation produced it: a sum of finite gradients overflowed"
        origin = NonfiniteOrigin("backward", kind, "unlocated", note=why)  # type: ignore[arg-type]
    return dataclasses.replace(origin, parameters=tuple(parameters), parameter_count=count)


def _replayed(entry: Entry, kind: str, calls: Sequence[ModuleCall], exempt: Exempt) -> NonfiniteOrigin | None:
    note = "the module call that produced it is no longer recorded"
    if 0 <= entry.call < len(calls):
        try:
            if (origin := trace_forward(calls[entry.call])) is not None:
                return origin
        except CannotReplay as limit:
            note = str(limit)
        else:
            if kind == "Inf":
                exempt.add(entry.name)  # written by masked_fill, full or a similar operation
                return None
            note = "it did not occur again when the step was repeated"
    return NonfiniteOrigin("forward", kind, "unlocated", module=entry.name, note=note)  # type: ignore[arg-type]


def _in_the_loop(before: Sequence[Range], entry: Entry, kind: str) -> NonfiniteOrigin | None:
    """The origin of a non-finite result outside every module."""
    bad = [seen for seen in before if seen.nonfinite and seen.entry.name not in PLACES]
    given = next((seen for seen in bad if seen.entry.kind == "given" and seen.nonfinite != "-Inf"), None)
    earlier = next((seen for seen in bad if seen.entry.kind == "op"), None)
    if given is not None:
        return _origin("forward", given.entry, str(given.nonfinite), "input", inputs=str(given.nonfinite))
    if earlier is not None:  # for example log gave -Inf, which became NaN later
        return _origin("forward", earlier.entry, str(earlier.nonfinite), "operation")
    if entry.kind == "loss":
        note = "it was produced outside every module, by an operation that could not be recorded"
        return NonfiniteOrigin("forward", kind, "unlocated", operation="loss", note=note)  # type: ignore[arg-type]
    inputs = next((f"-Inf from {seen.entry.name or 'the model'}" for seen in before if seen.nonfinite), "finite")
    return _origin("forward", entry, kind, "operation", inputs=inputs)


def _loop_gradient(ranges: Iterable[Range]) -> NonfiniteOrigin | None:
    """The first node outside every module that produced a non-finite gradient, or that first received one."""
    finite_so_far = True
    for seen in ranges:
        if seen.entry.kind not in ("gradient_in", "gradient_out"):
            continue
        if seen.nonfinite and finite_so_far:
            made = seen.entry.kind == "gradient_in"
            kind = "NaN" if seen.nonfinite == "NaN" else "Inf"
            return _origin("backward", seen.entry, kind, "operation" if made else "accumulation")
        finite_so_far = finite_so_far and not seen.nonfinite
    return None


def _origin(phase: str, entry: Entry, kind: str, source: str, inputs: str = "finite") -> NonfiniteOrigin:
    return NonfiniteOrigin(
        phase=phase,  # type: ignore[arg-type]
        kind=kind,  # type: ignore[arg-type]
        source=source,  # type: ignore[arg-type]
        operation=entry.name,
        inputs=inputs,
        inputs_finite=inputs == "finite",
        at=entry.at,
        code=linecache.getline(entry.at.file, entry.at.line).strip() if entry.at else "",
    )
