"""An input that should matter does not: another sample's image or instruction gives the same result.

## What it finds
A modality (image, instruction, state) whose rows can be exchanged among the samples of the batch without changing any
output or the loss.

## Why it hurts
A policy that ignores the image plays the average demonstration. One that ignores the instruction goes to the same block
for every instruction. The training loss still falls, because the other inputs carry information too. Typical causes are
a mask that hides all image tokens, features that are computed and not concatenated, a wrong key read with a default,
and text truncated to nothing.

## Evidence
The largest relative change of any output or the loss (of each scalar that the model returns, if it is not known which
of them is the loss) when the input's rows are exchanged, compared with the floor of
DK303. If there is none, the same once more with all-zero parameters set to small values.

## Fix
Follow the input: perturb it and check the output of each module in turn (`debugkit.trace_shapes` lists them) until one
no longer changes.

## When it stays silent
- Inputs with equal rows, and batches of one.
- Inputs behind a zero-initialised layer, gate or LoRA matrix, and a camera that its mask switches off.
- Batch entries that are no modality: indices, time stamps, masks, targets.
- Entries that may be the target of a loss that is not known, as under `debugkit run` if the script computes the loss
  from the model's output: those that the script also uses outside the model between this call and the next one, those
  whose name contains `target` or `output`, and those of a whole batch that have the shape of an output.
- Steps of which two equal passes differ by more than 1e-3 of their size: a small effect would not be seen. What the
  loss function holds (counters, queues, random generators) is the same in both passes.
- Models whose output is 0 everywhere, if their only input has an unknown name.

Without a declaration, modalities are recognised by name and the finding is a `warning`. Under `debugkit run`, the only
tensor that a model is called with is an input whatever its name, if it has floating-point rows. With
`Declare(modalities=("pixel_values", "input_ids"))` it is an `error`. In a 16-bit model it is `info`, because rounding
can hide a small effect.

## Cost
One pass for each modality, and at most four modalities unless they are declared. Two more passes measure the floor; all
rules that need it share them.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import entry_name, sentence


@dataclass(frozen=True, slots=True)
class ModalityEffect:
    """The effect of exchanging one input among the samples of the batch, in eval mode with equal random draws."""

    name: str
    paths: tuple[str, ...]
    moved: float
    """The largest relative change of an output or the loss."""
    moved_with_gates_open: float | None
    """The same with all-zero parameters set to small values and masks per sample set to True; None if not needed."""
    declared: bool


@measured_by(".measure:shuffle_a_modality", cost=4, requires=("batch",))
@dataclass(frozen=True, slots=True)
class ModalityEffects:
    """Every input that was tried."""

    inputs: tuple[ModalityEffect, ...]
    equal_rows: tuple[str, ...]
    """Inputs whose rows are all equal, so exchanging them changes nothing."""
    floor: float
    rounded: bool = False
    """Whether the model computes in 16 bits, where rounding can hide a small effect."""


@rule(
    "DK306",
    name="input-ignored",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("check", "call"),
    needs=(ModalityEffects,),
    consequence_of=("DK109", "DK111"),
)
def judge(seen: ModalityEffects, context: Context) -> Iterator[Finding]:
    for effect in seen.inputs:
        if effect.moved > seen.floor or (effect.moved_with_gates_open or 0.0) > seen.floor:
            continue
        name = entry_name(effect.name)
        doubt = " The model computes in 16 bits, where rounding can hide a small effect." if seen.rounded else ""
        yield context.finding(
            f"{sentence(name)} is ignored: exchanging it among the samples changes neither an output nor the "
            f"loss.{doubt}",
            input=effect.paths[0],
            evidence={
                "input": effect.name,
                "paths": list(effect.paths),
                "moved": effect.moved,
                "moved_with_gates_open": effect.moved_with_gates_open,
                "floor": seen.floor,
            },
            fix=f"Follow {name} through `forward()`: find where it is dropped, masked out or overwritten.",
            severity=Severity.INFO if seen.rounded else Severity.ERROR if effect.declared else None,
        )
