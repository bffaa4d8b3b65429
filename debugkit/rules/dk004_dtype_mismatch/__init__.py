"""A forward pass raises because a tensor does not have the dtype that the operation requires.

## What it finds
An exception about dtypes, raised while the model or its loss runs. The finding names the module that was running, the
dtype of its weights, the dtype of its input, and the module or the batch entry that produced the input.

## Why it hurts
`expected m1 and m2 to have the same dtype` names no layer. Typical causes:

- data from NumPy, which is float64;
- a bfloat16 model with one part that upcasts for stability and does not cast back;
- a head added after `model.bfloat16()`;
- float labels where class indices are required.

## Evidence
The module and its class, the dtypes of its inputs, the dtype of its own weights, the module that produced the tensor,
and torch's message.

## Fix
Cast where the dtype changes: `x.to(self.proj.weight.dtype)` before a layer, `.to(x.dtype)` after a part that computes
in float32. Cast data once, in the collate function. Autocast hides the mistake and does not fix it.

## When it stays silent
Forward passes that run, mixed precision included: autocast, quantised layers, and float32 norms in a bfloat16 model,
which torch accepts.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.shapes import ShapeFailure, ShapeTrace
from debugkit.rule import Context, rule
from debugkit.rule_text import listed, module_name


@rule(
    "DK004",
    name="dtype-mismatch",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(ShapeTrace,),
)
def judge(trace: ShapeTrace, context: Context) -> Iterator[Finding]:
    failure = trace.failure
    if failure is None or failure.about != "dtype":
        return
    yield context.finding(
        _message(failure),
        module=failure.module if failure.in_a_module else None,
        at=failure.line,
        evidence={
            "class": failure.kind,
            "input_dtypes": _dtypes(failure),
            "parameter_dtype": failure.parameter_dtype,
            "made_by": failure.producer,
            "message": failure.message,
        },
        fix=_fix(failure),
    )


def _message(failure: ShapeFailure) -> str:
    if not failure.in_a_module:
        return f"The loss raised {failure.message.rstrip('.')}."
    place = f"{failure.kind} `{failure.module}`" if failure.module else f"The model ({failure.kind})"
    if not _is_cast(failure):
        dtypes = listed(_dtypes(failure))
        return f"{place} raised {failure.message.rstrip('.')}. Dtypes of its inputs: {dtypes or 'none'}."
    producer = f", made by {module_name(failure.producer)}" if failure.producer else ""
    return f"{place} has {failure.parameter_dtype} weights but receives {_dtypes(failure)[0]}{producer}."


def _fix(failure: ShapeFailure) -> str:
    if not _is_cast(failure):
        return "Cast the tensor to the dtype that the message names, at the line that creates it."
    if failure.producer:
        dtype = failure.parameter_dtype
        return f"Make {module_name(failure.producer)} return {dtype}, or cast its output with `.to(weight.dtype)`."
    return f"Convert the data to {failure.parameter_dtype} in the collate function, or the model to the data's dtype."


def _is_cast(failure: ShapeFailure) -> bool:
    """Whether the dtypes of weights and input differ, which shows the missing cast."""
    dtypes = _dtypes(failure)
    return failure.parameter_dtype is not None and bool(dtypes) and dtypes[0] != failure.parameter_dtype


def _dtypes(failure: ShapeFailure) -> list[str]:
    return list(dict.fromkeys(shape.dtype for shape in failure.inputs))
