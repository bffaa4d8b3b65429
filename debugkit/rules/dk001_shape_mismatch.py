"""A forward pass raises because a tensor does not have the shape that the next module takes.

## What it finds
An exception about shapes while the model or its loss runs, explained: which module was running, which size it takes,
which it got, which module made that tensor, and which field of a config holds either number.

## Why it hurts
`mat1 and mat2 shapes cannot be multiplied (64x768 and 960x960)` names neither the layer nor where 768 came from, and
the traceback ends inside torch. In a policy the usual cause is a width written as a literal, which fits until the
vision tower, the language model or the robot's action space is exchanged.

## Evidence
The module and its class, the shapes that went in, the size expected and received, the module that made the tensor, the
config fields that fit, and torch's own message.

## Fix
Where a config field holds the size that arrives, build the layer from that field. `debugkit.trace_shapes(model, batch)`
lists every module's shapes up to the failure: the first surprise is the place, not the line that raised.

## When it stays silent
Forward passes that run, and exceptions about something else: dtypes are DK004, devices DK003, an id beyond its
embedding DK006, image placeholders DK007.

## Cost
Free: hooks on the observed step, which hold shapes and no tensor.

## Lesson
[Lab 01](../../lessons/shapes/01_projector_width.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.shapes import ShapeFailure, ShapeTrace
from debugkit.registry import Context, rule


@rule(
    "DK001",
    name="shape-mismatch",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="1F",
    modes=("check",),
    needs=(ShapeTrace,),
    consequence_of=("DK007",),
)
def judge(trace: ShapeTrace, context: Context) -> Iterator[Finding]:
    failure = trace.failure
    if failure is None or failure.about != "shape":
        return
    yield context.finding(
        _message(failure),
        module=failure.module if failure.in_a_module else None,
        at=failure.line,
        evidence={
            "class": failure.kind,
            "inputs": [str(shape) for shape in failure.inputs],
            "expected": failure.expected,
            "received": failure.received,
            "made_by": failure.producer,
            "fields_that_fit_expected": list(failure.fields_that_fit_expected),
            "fields_that_fit_received": list(failure.fields_that_fit_received),
            "message": failure.message,
        },
        fix=_fix(failure),
    )


def _message(failure: ShapeFailure) -> str:
    if not failure.in_a_module:
        return f"The loss raised {failure.message.rstrip('.')}."
    place = f"{failure.kind} `{failure.module or '(root)'}`"
    inputs = ", ".join(map(str, failure.inputs))
    if failure.expected is None:
        return f"{place}, given {inputs or 'no tensor'}, raised {failure.message.rstrip('.')}."
    producer = f", made by `{failure.producer}`" if failure.producer else ""
    return f"{place} takes {failure.expected} and receives {failure.received}: {inputs}{producer}."


def _fix(failure: ShapeFailure) -> str:
    if failure.fields_that_fit_received:
        field = failure.fields_that_fit_received[0]
        return f"Build `{failure.module}` from {field}, which is {failure.received}, if that is what it should take."
    if failure.fields_that_fit_expected and failure.producer:
        field = failure.fields_that_fit_expected[0]
        return f"Make `{failure.producer}` give {field}, which is {failure.expected}, or build the layer for it."
    return "Follow the shapes with debugkit.trace_shapes(model, batch) to the first one that surprises."
