"""An input that should matter does not: another sample's image or instruction gives the same result.

## What it finds
A modality (image, instruction, state) whose rows can be exchanged among the samples of the batch without moving any
output or the loss.

## Why it hurts
A policy that does not look plays the average demonstration; one that does not read goes to the same block whatever it
is told. The training loss falls all the same, by what the other inputs tell. Typical causes: a mask that hides all
image tokens, features computed and not concatenated, a wrong key read with a default, text cut to nothing.

## Evidence
The largest relative movement of any output or the loss when the input's rows are exchanged, against the floor of
DK303; and, where that was nothing, the movement once more with all-zero parameters opened.

## Fix
Follow the input: perturb it and look at each module's output in turn (`debugkit.trace_shapes` lists them) until it
stops moving.

## When it stays silent
Inputs with equal rows, batches of one, inputs behind a zero-initialised layer, gate or LoRA matrix, a camera that its
mask switches off, and entries of a batch that are no modality (indices, time stamps, masks, targets). Without a
declaration, modalities are known by name and a finding is a `warning`; `Declare(modalities=("pixel_values",
"input_ids"))` makes it an error. In a 16-bit model it is `info`: there a small effect is rounded away.

## Cost
One forward pass for each modality, four at most unless declared, and two that all experiments share.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.modalities import ModalityEffects
from debugkit.registry import Context, rule


@rule(
    "DK306",
    name="input-ignored",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    cost="6F",
    modes=("check",),
    needs=(ModalityEffects,),
    consequence_of=("DK109", "DK111"),
)
def judge(seen: ModalityEffects, context: Context) -> Iterator[Finding]:
    for effect in seen.inputs:
        if effect.moved > seen.floor or (effect.moved_with_gates_open or 0.0) > seen.floor:
            continue
        doubt = ", in 16 bits, whose rounding hides a small effect" if seen.rounded else ""
        yield context.finding(
            f"{effect.name} is ignored: exchanging it among the samples moves neither an output nor the loss{doubt}.",
            evidence={
                "input": effect.name,
                "paths": list(effect.paths),
                "moved": effect.moved,
                "moved_with_gates_open": effect.moved_with_gates_open,
                "floor": seen.floor,
            },
            fix=f"Follow {effect.name} through forward() to where it is dropped, masked out or overwritten.",
            severity=Severity.INFO if seen.rounded else Severity.ERROR if effect.declared else None,
        )
