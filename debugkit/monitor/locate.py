"""From the ranges of one step to the place where the first NaN or Inf was made."""

from __future__ import annotations

import dataclasses
import linecache
from collections.abc import Iterable, Sequence

from debugkit.monitor.calls import ModuleCall
from debugkit.monitor.op_trace import PLACES
from debugkit.monitor.step_replay import CannotReplay, trace_backward, trace_forward
from debugkit.monitor.timeline import Entry, Range
from debugkit.observations.nonfinite import NonfiniteOrigin

Exempt = set[str]
"""Modules whose output holds an Inf on purpose: found out once, and left in peace afterwards."""


def forward_origin(ranges: Sequence[Range], calls: Sequence[ModuleCall], exempt: Exempt) -> NonfiniteOrigin | None:
    """The first non-finite value of the forward pass; a -Inf counts only where it reached a loss."""
    for position, seen in enumerate(ranges):
        kind, entry = seen.nonfinite, seen.entry
        if kind is None or entry.kind not in ("output", "op", "loss") or entry.name in exempt:
            continue
        if kind == "-Inf" and entry.kind != "loss":
            continue
        origin = (
            _replayed(entry, kind, calls, exempt)
            if entry.kind == "output"
            else _in_the_loop(ranges[:position], entry, kind)
        )
        if origin is not None:
            return origin
    return None


def gradient_origin(
    ranges: Sequence[Range], calls: Sequence[ModuleCall], kind: str, parameters: Sequence[str], count: int
) -> NonfiniteOrigin:
    """Where the gradients of `parameters` (of `count`) became non-finite, `kind` being what they hold now."""
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
        why = notes[0] if notes else "no single operation made it: finite gradients overflowed where they are added up"
        origin = NonfiniteOrigin("backward", kind, "unlocated", note=why)  # type: ignore[arg-type]
    return dataclasses.replace(origin, parameters=tuple(parameters), parameter_count=count)


def _replayed(entry: Entry, kind: str, calls: Sequence[ModuleCall], exempt: Exempt) -> NonfiniteOrigin | None:
    note = "the call it happened in is no longer held"
    if 0 <= entry.call < len(calls):
        try:
            if (origin := trace_forward(calls[entry.call])) is not None:
                return origin
        except CannotReplay as limit:
            note = str(limit)
        else:
            if kind == "Inf":
                exempt.add(entry.name)  # put there by masked_fill, full or the like
                return None
            note = "it did not come again when the step was repeated"
    return NonfiniteOrigin("forward", kind, "unlocated", module=entry.name, note=note)  # type: ignore[arg-type]


def _in_the_loop(before: Sequence[Range], entry: Entry, kind: str) -> NonfiniteOrigin | None:
    """The origin of a non-finite result outside every module: nothing before it was NaN or Inf."""
    bad = [seen for seen in before if seen.nonfinite and seen.entry.name not in PLACES]
    given = next((seen for seen in bad if seen.entry.kind == "given" and seen.nonfinite != "-Inf"), None)
    earlier = next((seen for seen in bad if seen.entry.kind == "op"), None)
    if given is not None:
        return _origin("forward", given.entry, str(given.nonfinite), "input", inputs=str(given.nonfinite))
    if earlier is not None:  # log made -Inf, and only later did it turn into this
        return _origin("forward", earlier.entry, str(earlier.nonfinite), "operation")
    if entry.kind == "loss":
        note = "it was made outside every module, by an operation that could not be followed"
        return NonfiniteOrigin("forward", kind, "unlocated", operation="loss", note=note)  # type: ignore[arg-type]
    inputs = next((f"-Inf from {seen.entry.name or 'the model'}" for seen in before if seen.nonfinite), "finite")
    return _origin("forward", entry, kind, "operation", inputs=inputs)


def _loop_gradient(ranges: Iterable[Range]) -> NonfiniteOrigin | None:
    """The first node outside every module that made a non-finite gradient, or was the first to receive one."""
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
