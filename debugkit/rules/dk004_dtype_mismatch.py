"""A forward pass raises because a tensor's dtype is not the one that the operation takes.

## What it finds
An exception about dtypes while the model or its loss runs, explained: which module was running, the dtype of its
weights, the dtype of what it got, and which module, or which entry of the batch, made that.

## Why it hurts
`expected m1 and m2 to have the same dtype` names no layer. Typical causes: data from NumPy, which is float64; a model
in bfloat16 with one part that upcasts for stability and does not cast back; a head added after `model.bfloat16()`;
labels as floats where class indices are asked for.

## Evidence
The module and its class, the dtypes that went in, the dtype of its own weights, who made the tensor, and torch's
message.

## Fix
Cast where the tensor changes hands: `x.to(self.proj.weight.dtype)` before a layer, `.to(x.dtype)` after a part that
computes in float32. Cast data once, in the collate function. Autocast hides the mistake and does not mend it.

## When it stays silent
Forward passes that run, mixed precision included: autocast, float32 norms in a bfloat16 model, which torch takes,
quantised layers.

## Cost
Free: hooks on the observed step.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.shapes import ShapeFailure, ShapeTrace
from debugkit.registry import Context, rule


@rule(
    "DK004",
    name="dtype-mismatch",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="1F",
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
    place = f"{failure.kind} `{failure.module or '(root)'}`"
    if not _is_cast(failure):
        return f"{place}, given {', '.join(_dtypes(failure)) or 'no tensor'}, raised {failure.message.rstrip('.')}."
    producer = f", made by `{failure.producer}`" if failure.producer else ""
    return f"{place} holds {failure.parameter_dtype} weights and receives {_dtypes(failure)[0]}{producer}."


def _fix(failure: ShapeFailure) -> str:
    if not _is_cast(failure):
        return "Cast the tensor to the dtype that the message asks for, where it is made."
    if failure.producer:
        return f"Let `{failure.producer}` return {failure.parameter_dtype}, or cast with .to(weight.dtype) in between."
    return f"Convert the data to {failure.parameter_dtype} once, in the collate function, or the model to the data's."


def _is_cast(failure: ShapeFailure) -> bool:
    """Whether weights and input disagree, so that it is known which cast is missing."""
    dtypes = _dtypes(failure)
    return failure.parameter_dtype is not None and bool(dtypes) and dtypes[0] != failure.parameter_dtype


def _dtypes(failure: ShapeFailure) -> list[str]:
    return list(dict.fromkeys(shape.dtype for shape in failure.inputs))
