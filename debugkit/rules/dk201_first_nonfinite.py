"""The forward pass makes a NaN or an Inf; the first operation to do so is named.

## What it finds
The first NaN or Inf among everything the model and its loss compute, and the operation that made it: its source line,
whether it made a NaN or an Inf, and whether what it was given was finite. If a -Inf that was *computed* turned into a
NaN later, the operation that made the -Inf is named.

## Why it hurts
One NaN reaches every parameter with the next optimizer step, and from then on every value is NaN: where training
reports it is far from where it began.

## Evidence
`operation`, `kind` (NaN, Inf or -Inf), `inputs` (`finite`, or what they held), `code` (the line's text) and `frames`:
the last module calls with the smallest and largest absolute value of their weights, inputs and outputs. An input of the
model or a parameter that already held it is named as such.

## Fix
Make the operation's input one it is defined for: an epsilon *inside* `sqrt` or under a division, `log_softmax` in place
of `log(softmax)`, float32 or bfloat16 for a product that exceeds float16's 65504, a mask that leaves each row one
position. Not `nan_to_num` and not `clamp` on the result: the gradient of the operation stays NaN.

## When it stays silent
Boolean and integer tensors, and an Inf that was put in place and not computed: `masked_fill(mask, -inf)`, `full`,
`where`. A -Inf that no NaN and no loss comes of (`exp(-inf)` is 0).

## Cost
Under `watch()`: one minimum and maximum a module output, kept on the device, and one transfer a step. On a hit that
step's forward pass is run again, operation by operation. Under `check()`: one training step, repeated on a hit.

## Lesson
[Lab 22](../../lessons/numerics/22_sqrt_at_zero.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.nonfinite import Nonfinite, NonfiniteOrigin
from debugkit.registry import Context, rule


@rule(
    "DK201",
    name="first-nonfinite",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="1S",
    modes=("check", "watch"),
    needs=(Nonfinite,),
    consequence_of=("DK307", "DK313"),
)
def judge(seen: Nonfinite, context: Context) -> Iterator[Finding]:
    origin = seen.forward
    if origin is None:
        return
    yield context.finding(
        _message(origin),
        module=origin.module,
        at=origin.at,
        evidence={
            "operation": origin.operation,
            "kind": origin.kind,
            "inputs": origin.inputs,
            "code": origin.code,
            "frames": [frame.to_json() for frame in origin.frames[-4:]],
        },
        fix=_fix(origin),
    )


def _message(origin: NonfiniteOrigin) -> str:
    if origin.source == "input":
        return f"{origin.operation} holds {origin.kind} before anything is computed from it."
    if origin.source == "parameter":
        return f"{origin.operation} of {origin.module or 'the model'} holds {origin.kind} before the forward pass."
    if origin.source == "unlocated":
        place = f"The output of {origin.module or 'the model'}" if origin.operation != "loss" else "The loss"
        return f"{place} holds {origin.kind}; which operation made it is not known: {origin.note}."
    given = "finite input" if origin.inputs_finite else f"an input that holds {origin.inputs}"
    return f"{origin.operation} made {origin.kind} from {given}" + (f" in `{origin.code}`." if origin.code else ".")


def _fix(origin: NonfiniteOrigin) -> str:
    if origin.source == "input":
        return "Find the sample in the data, and what prepared it: a division by a zero range or standard deviation."
    if origin.source == "parameter":
        return "Look at the step before, or at the checkpoint: an earlier update, or the initialisation, put it there."
    if origin.source == "unlocated":
        return "Run debugkit.first_nonfinite(model, batch) on the batch of this step."
    if not origin.inputs_finite:
        return "Leave each row of the mask one valid position, or make the operation's input finite another way."
    return "Make the operation's input one it is defined for; do not replace the NaN afterwards."
