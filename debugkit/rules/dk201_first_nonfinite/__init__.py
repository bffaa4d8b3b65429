"""The forward pass produces a NaN or an Inf; the first operation that does so is named.

## What it finds
The first NaN or Inf among all values that the model and its loss compute, and the operation that made it: its source
line, whether it made a NaN or an Inf, and whether its input was finite. If a *computed* -Inf turns into a NaN later,
the operation that made the -Inf is named.

## Why it hurts
One NaN reaches every parameter with the next optimizer step. After that, every value is NaN, so the error shows far
from its origin.

## Evidence
`operation`, `kind` (NaN, Inf or -Inf), `inputs` (`finite`, or the non-finite values they held), `code` (the text of the
line) and `frames`: the last module calls with the smallest and largest absolute value of their weights, inputs and
outputs. If an input of the model or a parameter was already non-finite, that tensor is named.

## Fix
Give the operation an input for which it is defined:

- an epsilon *inside* `sqrt` or under a division;
- `log_softmax` instead of `log(softmax)`;
- float32 or bfloat16 for a product that exceeds float16's 65504;
- a mask that leaves at least one position in each row.

Do not apply `nan_to_num` or `clamp` to the result: the gradient of the operation stays NaN.

## When it stays silent
Boolean and integer tensors. An Inf that was assigned and not computed: `masked_fill(mask, -inf)`, `full`, `where`, and
what follows from it, as long as the loss is finite (a distance to oneself that `min` or `topk` leaves out). A -Inf that
leads to no NaN and to no infinite loss (`exp(-inf)` is 0).

## Cost
Under `watch()`, one minimum and one maximum for each module output are kept on the device, and one transfer per step
reads them. If a value is not finite, the forward pass of that step runs again, operation by operation.

## Lesson
[Lab 22](../../lessons/numerics/22_restart_and_it_trains.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.rule import Context, rule
from debugkit.step_replay.nonfinite import Nonfinite, NonfiniteOrigin


@rule(
    "DK201",
    name="first-nonfinite",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(Nonfinite,),
    consequence_of=("DK326", "DK307", "DK313", "DK206"),
)
def judge(seen: Nonfinite, context: Context) -> Iterator[Finding]:
    origin = seen.forward
    if origin is None:
        return
    yield context.finding(
        origin.sentence,
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


def _fix(origin: NonfiniteOrigin) -> str:
    if origin.source == "input":
        return "Find the sample and check its preprocessing for a division by a zero range or standard deviation."
    if origin.source == "parameter":
        return "Check the previous step and the checkpoint: it comes from an earlier update or from the initialisation."
    if origin.source == "unlocated":
        return "Run `debugkit.first_nonfinite(model, batch)` on the batch of this step."
    if not origin.inputs_finite:
        return "Leave at least one valid position in each row of the mask, or make the operation's input finite."
    return f"Give the operation an input for which it is defined. Do not replace the {origin.kind} afterwards."
