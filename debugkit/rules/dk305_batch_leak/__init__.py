"""A sample's output depends on the other samples of its batch, or on its row, in evaluation mode.

## What it finds
Output rows that change when sample 0 of the batch is replaced by another sample, with dropout off and equal random
draws.

If they do not change, the samples are put in another order. The rule then finds outputs that depend on the row of a
sample: a positional encoding that is sliced by the batch size (`pe[:x.size(0)]` with batch-first data), an embedding of
`torch.arange(x.size(0))`, or a parameter with one row for each sample of the batch.

## Why it hurts
The model is trained on information that the robot does not have: the other samples of a batch. The training loss looks
better than it is, and an output changes with the batch size. Typical causes are a softmax, a mean, a norm or a `view`
over the batch dimension, and a mask or position that is computed once for the whole batch.

A data loader that shuffles puts a sample in any row. Values by row are noise for it, and positions in time have none.

## Evidence
`moved`, the largest relative change of any other row, compared with `floor`: ten times the difference between two
identical passes, and at least 1e-5. `module` is the first module, in order of execution, whose rows for other samples
changed.

For the order: the slice, the row numbers or the parameter that gives other values to other rows. The outputs are equal
again, within the floor, if its rows follow the samples. It must be used in training mode too. This is an error if a
`DataLoader` with this batch size draws the samples in random order, and otherwise `info`, because the first dimension
could be one of agents or of frames. A parameter is examined only with such a loader. If its rows are equal, such as
zeros, it is examined with different values.

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

The order is not examined if the model draws numbers for each sample, if another dimension of an input has the size of
the batch, or if an output depends on the order in another way: states of earlier batches, buffers that a training pass
changes or that are named as a state or as noise, values that the loss function makes, and parts of the batch that are
treated differently.

Nodes of a graph are not examined: an adjacency matrix relates them, or indices of rows (`edge_index`) by which the
model gathers or adds them, and the model did not compute these. Neither is a list of samples of several lengths.

## Cost
Up to five more passes if a row changed, and up to twelve if the order changes an output.

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


@dataclass(frozen=True, slots=True)
class RowSource:
    """What gives other values to a sample in another row."""

    moved: float
    """The largest relative change of a sample's output in another row."""
    table: str
    """The parameter or buffer; `""` for row numbers."""
    has_a_row_per_sample: bool
    """Whether it is a parameter whose first dimension is the batch size."""
    drawn_at_random: bool
    """Whether a data loader with this batch size draws the samples in random order."""
    module: str
    at: SourceLine | None


@measured_by(".measure:replace_sample_zero", cost=4, requires=("batch", "samples"))
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
    source: RowSource | None = None
    """What gives other values to a sample in another row, if the samples do not influence each other."""


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
        if seen.source is not None:
            yield _by_row(seen, seen.source, context)
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


def _by_row(seen: BatchIndependence, source: RowSource, context: Context) -> Finding:
    if source.has_a_row_per_sample:
        cause = f"the parameter `{source.table}` has one row for each of the {seen.batch_size} samples"
        fix = "Give the parameter a first dimension of 1 and expand it, for example `.expand(x.size(0), -1, -1)`."
    elif source.table:
        cause = f"a part of `{source.table}` with one row for each of the {seen.batch_size} samples is used"
        fix = "Slice it by the dimension of time: with the batch first, by `x.size(1)` and not by `x.size(0)`."
    else:
        cause = f"positions are counted along the {seen.batch_size} samples"
        fix = "Count along the dimension of time: with the batch first, `torch.arange(x.size(1))`."
    intended = context.declare.coupled_batch or not source.drawn_at_random
    return context.finding(
        f"The result of a sample depends on its row in the batch: {cause}. In another order of the samples, outputs "
        f"change by up to {source.moved:.2g} of their size.",
        module=source.module,
        at=source.at,
        evidence={"moved": source.moved, "floor": seen.floor, "batch_size": seen.batch_size, "table": source.table},
        fix=f"{fix} Nothing to do if the first dimension is not that of independent samples." if intended else fix,
        severity=Severity.INFO if intended else None,
    )
