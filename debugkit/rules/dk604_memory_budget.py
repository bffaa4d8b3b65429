"""A training step needs more memory than there is.

## What it finds
A predicted peak above the budget: that of `Declare(memory_budget=…)`, or all of the GPU that the model is on. The step
runs on tensors that have shapes and no memory, so that no GPU is needed to ask.

## Why it hurts
`CUDA out of memory` names the allocation that came last, not what fills the card. AdamW alone keeps twice the
parameters; in a policy most of the rest is usually activations of one tower.

## Evidence
The peak and the budget, and what it consists of: parameters, gradients, optimizer state, activations kept for backward,
and the modules that keep most of them.

## Fix
If parameters, gradients and optimizer state alone are too many, fewer must train, or in another form (LoRA, 8-bit
state, sharding): no batch size helps. Otherwise a smaller batch with accumulation, or checkpointing of the module that
keeps most. `debugkit.find_batch_size` searches; `debugkit.memory_profile` prints the whole table.

## When it stays silent
Where there is no budget to compare with, it is not examined. The figure is that of the CPU's kernels and leaves out the
allocator's reserve, so a step just below the budget may still fail on the GPU, and a fused attention may need less.
Therefore a `warning`; an `error` if what no batch size changes is already too much.

## Cost
No computation: two steps on tensors without memory. Where the code reads values (`.item()`), two real steps.

## Lesson
[Lab 63](../../lessons/memory/63_memory_budget.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.memory_demand import MemoryDemand
from debugkit.observations.storage import mebibytes
from debugkit.registry import Context, rule


@rule(
    "DK604",
    name="memory-budget",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    cost="0 hw",
    modes=("check",),
    needs=(MemoryDemand,),
)
def judge(seen: MemoryDemand, context: Context) -> Iterator[Finding]:
    profile = seen.profile
    if max(profile.peak.bytes, seen.lasting) <= seen.budget:
        return
    hopeless = seen.lasting > seen.budget
    by_size = sorted(profile.by_module, key=lambda part: -part.bytes)
    largest = [part for part in by_size if part.module]
    consists = (
        f"{mebibytes(seen.lasting)} of parameters, gradients and optimizer state"
        if hopeless
        else f"{mebibytes(profile.peak.bytes)} at its peak, in {profile.peak.phase}"
    )
    yield context.finding(
        f"A step needs {consists}; the budget ({seen.source}) is {mebibytes(seen.budget)}.",
        module=None if hopeless or not largest else largest[0].module,
        evidence={
            "peak": profile.peak.bytes,
            "budget": seen.budget,
            "parameters": profile.parameters,
            "gradients": profile.gradients,
            "optimizer_state": profile.optimizer_state,
            "activations": profile.activations,
            "largest_activations": {part.module: part.bytes for part in by_size[:3]},
            "without_memory": profile.fake_tensors,
        },
        fix=_fix(hopeless, largest[0].module if largest else ""),
        severity=Severity.ERROR if hopeless else None,
        certainty=Certainty.PROOF if hopeless else None,
    )


def _fix(hopeless: bool, module: str) -> str:
    if hopeless:
        return "Train fewer parameters (freeze, LoRA), keep the optimizer's state in fewer bits, or shard it."
    place = f" `{module}`, which keeps most activations" if module else " the largest block"
    return f"Take a smaller batch and accumulate, or checkpoint{place}: debugkit.find_batch_size searches."
