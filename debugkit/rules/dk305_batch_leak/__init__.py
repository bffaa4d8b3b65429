"""A sample's output depends on the other samples of its batch, in evaluation mode.

## What it finds
Output rows that change when sample 0 of the batch is replaced by another sample, with dropout off and equal random
draws.

## Why it hurts
The model is trained on information that the robot does not have: the other samples of a batch. The training loss looks
better than it is, and an output changes with the batch size. Typical causes are a softmax, a mean, a norm or a `view`
over the batch dimension, and a mask or position that is computed once for the whole batch.

## Evidence
`moved`, the largest relative change of any other row, compared with `floor`: ten times the difference between two
identical passes, and at least 1e-5. `module` is the first module, in order of execution, whose rows for other samples
changed.

If a row changed, the batch runs again with one sample fewer: only outputs that then have one row fewer count. If the
model does not run with fewer samples, the finding is a `warning`.

## Fix
Find the operation over dimension 0 in that module and make it work on each sample separately: name the dimension
(`dim=-1`), or keep the batch dimension when reshaping.

## When it stays silent
BatchNorm in eval mode, dropout, random sampling (all draws are repeated), losses that couple a batch, and changes below
the floor. The finding is `info` if the coupling is declared (`Declare(coupled_batch=True)`), or if the output is a
(B, B) matrix that compares each sample with each. It is `info` too if the samples compete for the capacity of
experts: a slightly different sample 0 changes nothing, and entries of a `ModuleList` get a part of the rows.

The same holds if the loss function mixes each sample with one or two others before it calls the model.

Nodes of a graph are not examined: an adjacency matrix relates them, or indices of rows (`edge_index`) by which the
model gathers or adds them, and the model did not compute these. Neither is a list of samples of several lengths.

## Cost
Up to five more passes if a row changed.

## Lesson
[Lab 43](../../lessons/actions/43_works_alone.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, module_name


@measured_by(".measure:replace_sample_zero", cost=3, requires=("batch", "samples"))
@dataclass(frozen=True, slots=True)
class BatchIndependence:
    """Relative changes in eval mode with fixed random draws."""

    batch_size: int
    output: str
    """Path of the output that changed most, `""` for a bare tensor."""
    moved: float
    """The largest change of any row but the first."""
    rows_moved: int
    """How many rows of that output, apart from the first, changed by more than the floor."""
    pairwise: bool
    """Whether the output compares each sample with each (a similarity matrix)."""
    floor: float
    module: str
    """The first module, in order of execution, one of whose outputs changed for another sample."""
    one_fewer: bool = True
    """Whether the model runs with one sample fewer."""
    by_a_router: bool = False
    """Whether entries of a list of modules, such as experts, get chosen rows, and a small change moves no other row."""
    at: SourceLine | None = None
    """The line of the first operation one of whose other rows changed."""
    mixed_before: bool = False
    """Whether the rows that the model was given for other samples changed already."""


PARTNERS = 2
"""Mixup and its relatives give each sample one partner or two."""


@rule(
    "DK305",
    name="batch-leak",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "call"),
    needs=(BatchIndependence,),
)
def judge(seen: BatchIndependence, context: Context) -> Iterator[Finding]:
    if seen.moved <= seen.floor:
        return
    evidence = {
        "moved": seen.moved,
        "floor": seen.floor,
        "rows_moved": seen.rows_moved,
        "batch_size": seen.batch_size,
        "output": seen.output,
    }
    if context.declare.coupled_batch or seen.pairwise:
        yield context.finding(
            f"The samples of a batch influence each other, by up to {seen.moved:.2g} of the output's size, as in "
            "contrastive models.",
            module=seen.module,
            evidence=evidence,
            fix="Nothing to do if that is intended.",
            severity=Severity.INFO,
        )
        return
    if seen.mixed_before and seen.rows_moved <= PARTNERS < seen.batch_size - 1:
        yield context.finding(
            "The loss function mixes samples before it calls the model, as mixup does: another sample 0 changes "
            f"{counted(seen.rows_moved, 'other sample')}.",
            evidence=evidence,
            fix="Nothing to do if that is intended.",
            severity=Severity.INFO,
        )
        return
    if seen.by_a_router:
        yield context.finding(
            f"Samples of a batch compete for the parts of {module_name(seen.module)}: another sample 0 changes which "
            "parts process the others.",
            module=seen.module,
            evidence=evidence,
            fix="Nothing to do if that is intended. At inference, give the experts enough capacity for every sample.",
            severity=Severity.INFO,
        )
        return
    others = counted(seen.rows_moved, "other sample")
    yield context.finding(
        f"Replacing sample 0 changes the output of {others} by up to {seen.moved:.2g} of its size. It must not change.",
        module=seen.module,
        at=seen.at,
        evidence=evidence,
        fix="Make the operation over dimension 0 (softmax, mean, norm, view instead of permute) per sample.",
        severity=None if seen.one_fewer else Severity.WARNING,
    )
