"""A step that runs on the CPU fails on a GPU, because it creates a tensor on the CPU and leaves it there.

## What it finds
Lines that create a tensor without saying where (`torch.ones(n)`, `torch.tensor(…)`, `torch.arange(…)`), bring one back
(`.cpu()`), take a global or a closure's tensor, or turn one into NumPy, and the operation in which it then meets the
model's device. The step runs on a second device: CUDA where there is one, otherwise a pretended one, tensors with a
device and shapes and no values, in a child process. After each stray tensor the run goes on, so that all are named.

## Why it hurts
Everything passes on the laptop and in CI, and the first run on the cluster ends with `Expected all tensors to be on the
same device`, one line at a time. A `.cuda()` literal mends it there and breaks it everywhere else.

## Evidence
The line that made the tensor, the operation and the line that it stops, in forward or in backward, its shape and dtype.

## Fix
Make it where the data is: `torch.ones(n, device=x.device)`, `x.new_ones(n)`, `torch.zeros_like(x)`. What belongs to a
module and does not train is a buffer.

## When it stays silent
Steps that run there; scalars, which may stay on the CPU; what the code moves itself with `.to(x.device)`; code that
moves to the CPU only to log. A tensor that a module holds is DK005.

## Cost
One step, in a child process. A pretended device computes nothing.

## Lesson
[Lab 04](../../lessons/shapes/04_stray_device.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.observations.second_device import SecondDevice, StrayTensor
from debugkit.registry import Context, rule


@rule(
    "DK003",
    name="device-mismatch",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="1S",
    modes=("check",),
    needs=(SecondDevice,),
)
def judge(seen: SecondDevice, context: Context) -> Iterator[Finding]:
    if seen.not_examined is not None and not seen.strays:
        raise NotExamined(seen.not_examined)
    for stray in seen.strays:
        if stray.attribute is None:
            yield _finding(stray, seen, context)


def _finding(stray: StrayTensor, seen: SecondDevice, context: Context) -> Finding:
    what = f"`{stray.variable}`, " if stray.variable else ""
    stops = f"it stops the {stray.phase} at {stray.operation}"
    module = f" in `{stray.module}`" if stray.module else ""
    return context.finding(
        f"{what}a {stray.dtype} tensor of shape {list(stray.shape)}, stays on the CPU: {stops}{module}.",
        module=stray.module,
        at=stray.created or stray.used,
        evidence={
            "device": seen.device,
            "phase": stray.phase,
            "operation": stray.operation,
            "used": f"{stray.used.file}:{stray.used.line}" if stray.used else None,
            "created": f"{stray.created.file}:{stray.created.line}" if stray.created else None,
            "variable": stray.variable,
            "shape": list(stray.shape),
            "dtype": stray.dtype,
            "message": stray.message,
        },
        fix=_fix(stray),
    )


def _fix(stray: StrayTensor) -> str:
    if stray.operation in ("numpy", "__array__"):
        return "Call .detach().cpu() before .numpy(), and not inside the step: it waits for the device."
    if stray.variable:
        return f"Make `{stray.variable}` a buffer of the module that uses it, or move it once with .to(device)."
    return "Create it where the data is: device=x.device, x.new_zeros(…) or torch.zeros_like(x)."
