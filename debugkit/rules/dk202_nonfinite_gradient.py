"""A gradient is NaN or Inf although the forward pass is finite; the operation whose backward made it is named.

## What it finds
A gradient that holds a NaN or an Inf when the optimizer is about to use it, and the first autograd node that made one
from finite gradients: `SqrtBackward0` at the line that called `sqrt`. Anomaly mode sees NaN only, and so raises far
from the place where an Inf became one, or not at all.

## Why it hurts
The loss looks healthy, and one step later every parameter is NaN. Gradient clipping makes it worse: an infinite norm
turns all gradients to zero or NaN.

## Evidence
`operation` (the autograd node), `kind`, `code` (the line of the forward pass that built the node), `parameters` (those
whose gradient is not finite) of `parameter_count`. A norm that overflows over finite values does not count: each
suspect is looked at itself.

## Fix
At 0 the derivatives of `sqrt`, `norm` written by hand, `x / x.norm()`, and `pow(0.5)` are infinite or
undefined: put an epsilon under the root. For `torch.where`, make the input of the branch not taken safe as well: 0
times Inf is NaN.

## When it stays silent
Steps that a GradScaler skips for an overflow (their gradients are never used), steps that the loop itself skips, and
gradients that a non-finite forward pass explains (DK201).

## Cost
Under `watch()`: one norm of each gradient, read with the step's one transfer. On a hit the step's forward and backward
are run again, node by node. Under `check()`: one training step, repeated on a hit.

## Lesson
[Lab 22](../../lessons/numerics/22_sqrt_at_zero.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.nonfinite import Nonfinite, NonfiniteOrigin
from debugkit.registry import Context, rule


@rule(
    "DK202",
    name="nonfinite-gradient",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="1S",
    modes=("check", "watch"),
    needs=(Nonfinite,),
    consequence_of=("DK201",),
)
def judge(seen: Nonfinite, context: Context) -> Iterator[Finding]:
    origin = seen.gradient
    if origin is None:
        return
    yield context.finding(
        _message(origin),
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
        fix="Change the forward line so that its derivative exists there: an epsilon under the root or the division, "
        "or a safe input for the branch not taken."
        if origin.source == "operation"
        else "Look for values near the largest that the dtype holds; bfloat16 or float32 for this part.",
        affects=origin.parameters,
    )


def _message(origin: NonfiniteOrigin) -> str:
    reach = f"{len(origin.parameters)} of {origin.parameter_count} gradients are not finite"
    if not origin.parameter_count:  # a step that was replayed for its operation alone
        reach = "which gradients it reaches was not looked at"
    if origin.source == "unlocated":
        first = f", {origin.parameters[0]} first" if origin.parameters else ""
        return f"{reach}{first}; which operation made them so is not known: {origin.note}."
    what = (
        f"{origin.operation} made {origin.kind} from finite input"
        if origin.source == "operation"
        else f"Finite gradients became {origin.kind} where they were added up for {origin.operation}"
    )
    return f"{what}" + (f"; forward: `{origin.code}`. " if origin.code else ". ") + f"{reach}."
