"""A forward pass raises because the shape of a tensor does not fit the module that receives it.

## What it finds
An exception about shapes, raised while the model or its loss runs. The finding names the module that was running, the
size it expects, the size it received, the module that produced the tensor, and the config fields that hold either size.

## Why it hurts
`mat1 and mat2 shapes cannot be multiplied (64x768 and 960x960)` names neither the layer nor the origin of 768, and the
traceback ends inside torch. In a policy, the usual cause is a width written as a literal. The literal fits until the
vision tower, the language model or the robot's action space is replaced.

## Evidence
The module and its class, the shapes of its inputs, the expected and the received size, the module that produced the
tensor, the config fields with one of the two sizes, and torch's own message.

## Fix
If a config field holds the received size, build the layer from that field. `debugkit.trace_shapes(model, batch)` lists
the shapes of every module up to the failure. The fault is at the first unexpected shape, not at the line that raised.

## When it stays silent
Forward passes that run, and exceptions about something else: dtypes are DK004, devices DK003, ids without an embedding
row DK006, image placeholders DK007.

## Cost
The hooks keep shapes and no tensors.

## Lesson
[Lab 01](../../lessons/shapes/01_one_robot_only.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.shapes import ShapeFailure, ShapeTrace
from debugkit.rule import Context, rule
from debugkit.rule_text import listed, module_name


@rule(
    "DK001",
    name="shape-mismatch",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
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
    place = f"{failure.kind} `{failure.module}`" if failure.module else f"The model ({failure.kind})"
    inputs = listed(failure.inputs)
    if failure.expected is None:
        return f"{place} raised {failure.message.rstrip('.')}. Its inputs: {inputs or 'no tensor'}."
    producer = f", made by {module_name(failure.producer)}" if failure.producer else ""
    return f"{place} expects size {failure.expected} but receives {failure.received}: {inputs}{producer}."


def _fix(failure: ShapeFailure) -> str:
    module = module_name(failure.module)
    if failure.fields_that_fit_received:
        field = failure.fields_that_fit_received[0]
        return f"Build {module} from `{field}` ({failure.received}), if that is the intended input size."
    if failure.fields_that_fit_expected and failure.producer:
        field = failure.fields_that_fit_expected[0]
        size = f"size {failure.expected} (`{field}`)"
        return f"Make {module_name(failure.producer)} return {size}, or build {module} for size {failure.received}."
    return "Call `debugkit.trace_shapes(model, batch)` and look for the first unexpected shape."
