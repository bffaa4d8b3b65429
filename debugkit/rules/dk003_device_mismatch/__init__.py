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

One finding names all tensors that are used in the same line. Its severity says how sure it is that the program will run
on such a device:

- `error` on a device that exists on this machine, or that was named with `check(device=…)`;
- `warning` on the simulated device, if a line of the program creates the tensor in the step and another line says where
  tensors go (`device=`, `.to(device)`); it does not change `report.ok`;
- `info` otherwise, and always for a tensor that a closure or a global holds: the set-up may move it.

## When it stays silent
Steps that run on the second device; scalars, which may stay on the CPU; tensors that the code moves itself with
`.to(x.device)`; `.to(DEVICE)`, where `DEVICE` is the CPU only because this machine has no other; code that moves
tensors to the CPU only for logging. Modules that the loss function holds are moved like the model. A tensor that a
module holds is DK005, and a parameter that no optimizer holds is DK101. A tensor that PyTorch itself makes on the
device of one that it was given, as `nn.TransformerEncoder` makes a causal mask to compare with yours, is left out.

## Cost
Without CUDA, the passes run in a child process on the simulated device, which computes no values.

## Lesson
[Lab 04](../../lessons/shapes/04_stays_at_home.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity
from debugkit.frames import is_own
from debugkit.measurements.second_device import SecondDevice, StrayTensor
from debugkit.plain_data import short_line
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, sentence


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
    lines: dict[object, list[StrayTensor]] = {}
    for stray in seen.strays:
        if stray.attribute is None and not stray.trains:
            lines.setdefault(stray.used or stray, []).append(stray)
    for strays in lines.values():
        yield _finding(strays[0], strays[1:], seen, context)


def _finding(stray: StrayTensor, others: list[StrayTensor], seen: SecondDevice, context: Context) -> Finding:
    fails = f"the {stray.phase} pass fails at `{stray.operation}`"
    module = f" in `{stray.module}`" if stray.module else ""
    tensor = f"{'an' if stray.dtype[0] in 'iu' else 'a'} {stray.dtype} tensor of shape {list(stray.shape)}"
    subject = f"`{stray.variable}`, {tensor}," if stray.variable else sentence(tensor)
    more = f" The same line uses {counted(len(others), 'other tensor')} on the CPU." if others else ""
    return context.finding(
        f"{subject} stays on the CPU: {fails}{module}.{more}",
        module=stray.module,
        at=stray.created or stray.used,
        evidence={
            "device": seen.device,
            "phase": stray.phase,
            "operation": stray.operation,
            "used": short_line(stray.used) if stray.used else None,
            "created": short_line(stray.created) if stray.created else None,
            "placed_elsewhere": short_line(seen.placed) if seen.placed else None,
            "variable": stray.variable,
            "shape": list(stray.shape),
            "dtype": stray.dtype,
            "others": [list(other.shape) for other in others],
            "message": stray.message,
        },
        fix=_fix(stray),
        severity=_severity(stray, seen),
    )


def _severity(stray: StrayTensor, seen: SecondDevice) -> Severity:
    """A tensor from elsewhere may be moved by the set-up, which does not run here."""
    if stray.created is None:
        return Severity.INFO
    return seen.severity if seen.certain or is_own(stray.created.file) else Severity.INFO


def _fix(stray: StrayTensor) -> str:
    if stray.operation in ("numpy", "__array__"):
        return "Call `.detach().cpu()` before `.numpy()`. Do it outside the step, because it waits for the device."
    if stray.variable:
        return f"Make `{stray.variable}` a buffer of the module that uses it, or move it once with `.to(device)`."
    return "Create it on the device of the data: `device=x.device`, `x.new_zeros(…)` or `torch.zeros_like(x)`."
