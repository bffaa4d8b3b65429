"""A step that runs on the CPU fails on a GPU, because it creates a tensor on the CPU and leaves it there.

## What it finds
Lines that leave a tensor on the CPU, and the operation in which that tensor meets the model's device. Such lines create
a tensor without a device (`torch.ones(n)`, `torch.tensor(…)`, `torch.arange(…)`), move one back (`.cpu()`), use a
global or a closure's tensor, or convert one to NumPy.

The step runs on a second device: CUDA if there is one, otherwise a simulated device (`pretended`) in a child process,
whose tensors have a device and shapes but no values. After each stray tensor the run continues, so that one run names
all of them.

## Why it hurts
Everything passes on the laptop and in CI. The first run on the cluster ends with `Expected all tensors to be on the
same device`, and each fixed line only reveals the next one. A literal `.cuda()` fixes it there and breaks every other
machine.

## Evidence
The line that created the tensor, its shape and dtype, the operation that fails and its line, and whether it fails in
forward or in backward.

## Fix
Create the tensor on the device of the data: `torch.ones(n, device=x.device)`, `x.new_ones(n)`, `torch.zeros_like(x)`.
Register a tensor that belongs to a module and does not train as a buffer.

## When it stays silent
Steps that run on the second device; scalars, which may stay on the CPU; tensors that the code moves itself with
`.to(x.device)`; code that moves tensors to the CPU only for logging. A tensor that a module holds is DK005.

## Cost
Without CUDA, the passes run in a child process on the simulated device, which computes no values.

## Lesson
[Lab 04](../../lessons/shapes/04_stays_at_home.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.measurements.second_device import SecondDevice, StrayTensor
from debugkit.rule import Context, rule
from debugkit.rule_text import sentence


@rule(
    "DK003",
    name="device-mismatch",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
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
    fails = f"the {stray.phase} pass fails at `{stray.operation}`"
    module = f" in `{stray.module}`" if stray.module else ""
    tensor = f"{'an' if stray.dtype[0] in 'iu' else 'a'} {stray.dtype} tensor of shape {list(stray.shape)}"
    subject = f"`{stray.variable}`, {tensor}," if stray.variable else sentence(tensor)
    return context.finding(
        f"{subject} stays on the CPU: {fails}{module}.",
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
        return "Call `.detach().cpu()` before `.numpy()`. Do it outside the step, because it waits for the device."
    if stray.variable:
        return f"Make `{stray.variable}` a buffer of the module that uses it, or move it once with `.to(device)`."
    return "Create it on the device of the data: `device=x.device`, `x.new_zeros(…)` or `torch.zeros_like(x)`."
