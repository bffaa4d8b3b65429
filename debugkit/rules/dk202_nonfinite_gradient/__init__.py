"""A gradient is NaN or Inf although the forward pass is finite; the operation whose backward made it is named.

## What it finds
A gradient that holds a NaN or an Inf when the optimizer is about to use it, and the first autograd node that made one
from finite gradients, for example `SqrtBackward0` at the line that called `sqrt`. torch's anomaly mode detects only
NaN. If an Inf comes first, it raises far from the origin or not at all.

## Why it hurts
The loss looks healthy, and one step later every parameter is NaN. Gradient clipping makes it worse: an infinite norm
turns all gradients into zero or NaN.

## Evidence
`operation` (the autograd node), `kind`, `code` (the line of the forward pass that built the node), and the
`parameters`, out of `parameter_count`, whose gradient is not finite. A norm that overflows over finite values does not
count: the gradients behind such a norm are checked value by value.

## Fix
The derivatives of `sqrt`, of a hand-written `norm`, of `x / x.norm()` and of `pow(0.5)` are infinite or undefined at 0.
Add an epsilon under the root. With `torch.where`, make the input of the branch that is not selected safe as well: 0
times Inf is NaN.

## When it stays silent
Steps that a GradScaler skips because of an overflow (their gradients are never used), steps that the loop itself skips,
and gradients that a non-finite forward pass explains (DK201).

## Cost
Under `watch()`, one norm for each gradient, read with the one transfer of the step. If a gradient is not finite,
forward and backward of that step run again, node by node.

## Lesson
[Lab 22](../../lessons/numerics/22_restart_and_it_trains.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.rule import Context, rule
from debugkit.step_replay.nonfinite import Nonfinite


@rule(
    "DK202",
    name="nonfinite-gradient",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(Nonfinite,),
    consequence_of=("DK201", "DK206"),
)
def judge(seen: Nonfinite, context: Context) -> Iterator[Finding]:
    origin = seen.gradient
    if origin is None:
        return
    yield context.finding(
        origin.sentence,
        module=origin.module,
        parameter=origin.parameters[0] if origin.parameters and origin.at is None else None,
        at=origin.at,
        evidence={
            "operation": origin.operation,
            "kind": origin.kind,
            "code": origin.code,
            "parameters": list(origin.parameters[:8]),
            "nonfinite_gradients": len(origin.parameters),
            "parameter_count": origin.parameter_count,
        },
        fix="Change the forward line so that its derivative is finite: add an epsilon under the root or the division, "
        "or give the branch that is not selected a safe input."
        if origin.source == "operation"
        else "Look for values near the dtype's maximum, and compute this part in bfloat16 or float32.",
        affects=origin.parameters,
    )
