"""A training step needs more memory than is available.

## What it finds
A predicted peak above the budget: the declared `Declare(memory_budget=…)`, or the whole memory of the model's GPU. The
step runs on fake tensors, which have shapes but no memory, so the prediction needs no GPU.

## Why it hurts
`CUDA out of memory` names the last allocation, not what fills the memory. AdamW's state alone is twice the size of the
parameters. In a policy, most of the rest is usually activations of one tower.

## Evidence
The peak and the budget; the parts of the peak: parameters, gradients, optimizer state and activations kept for
backward; and the modules that keep most activations.

## Fix
If parameters, gradients and optimizer state alone exceed the budget, no batch size helps: train fewer parameters, or
use LoRA, 8-bit optimizer state or sharding. Otherwise use a smaller batch with accumulation, or checkpoint the module
that keeps most activations. `debugkit.find_batch_size` searches for a batch size; `debugkit.memory_profile` prints the
whole table.

## When it stays silent
The rule is not examined without a budget. The prediction uses the CPU's kernels and leaves out the allocator's reserve,
so a step just below the budget may still fail on the GPU, and a fused attention may need less. The finding is
therefore a `warning`; it is an `error` if the memory that does not depend on the batch size already exceeds the budget.

## Cost
Two steps on fake tensors. If the code reads values (`.item()`), two real steps instead.

## Lesson
[Lab 63](../../lessons/memory/63_not_one_frame.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.memory_profile import MemoryProfile, mebibytes
from debugkit.observation import measured_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import module_name


@measured_by(".measure:predict_memory", cost=1, requires=("batch",))
@dataclass(frozen=True)
class MemoryDemand(PlainData):
    """A predicted peak and a budget, in bytes; `source` is the origin of the budget: `declared` or a device."""

    profile: MemoryProfile
    budget: int
    source: str

    @property
    def lasting(self) -> int:
        """Bytes that do not depend on the batch size: parameters, buffers, gradients and optimizer state."""
        profile = self.profile
        return profile.parameters + profile.buffers + profile.gradients + profile.optimizer_state


@rule(
    "DK604",
    name="memory-budget",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("check",),
    needs=(MemoryDemand,),
)
def judge(seen: MemoryDemand, context: Context) -> Iterator[Finding]:
    profile = seen.profile
    if max(profile.peak.bytes, seen.lasting) <= seen.budget:
        return
    at_any_batch_size = seen.lasting > seen.budget
    by_size = sorted(profile.by_module, key=lambda part: -part.bytes)
    largest = [part for part in by_size if part.module]
    needed = (
        f"{mebibytes(seen.lasting)} for parameters, gradients and optimizer state alone"
        if at_any_batch_size
        else f"{mebibytes(profile.peak.bytes)} at its peak, in the {_PHASES[profile.peak.phase]}"
    )
    yield context.finding(
        f"A step needs {needed}; the budget is {mebibytes(seen.budget)} ({seen.source}).",
        module=None if at_any_batch_size or not largest else largest[0].module,
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
        fix=_fix(at_any_batch_size, largest[0].module if largest else ""),
        severity=Severity.ERROR if at_any_batch_size else None,
        certainty=Certainty.PROOF if at_any_batch_size else None,
    )


_PHASES = {"forward": "forward pass", "backward": "backward pass", "optimizer": "optimizer step"}


def _fix(at_any_batch_size: bool, module: str) -> str:
    if at_any_batch_size:
        return "Train fewer parameters (freeze some, LoRA), use an optimizer state with fewer bits, or shard it."
    block = f"{module_name(module)}, which keeps most activations" if module else "the largest block"
    return f"Use a smaller batch with accumulation (`debugkit.find_batch_size` finds its size), or checkpoint {block}."
