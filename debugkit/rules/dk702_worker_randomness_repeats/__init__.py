"""DataLoader workers draw the same random numbers, or every epoch repeats those of the previous one.

## What it finds
One sample is read several times by each of two workers. The sample changes from read to read, so it contains random
draws. But both workers give the same draws in the same order, or the workers of the second epoch repeat those of the
first. The cause is almost always a generator held by the data set: each worker gets a copy of it in the same state.

## Why it hurts
With eight workers each augmentation occurs eight times, and every epoch repeats the previous one. The data are much
less varied than they seem, and nothing reports it.

## Evidence
The number of workers, whether the workers agree, whether the epochs agree, and the attribute that holds a generator.
Equal means bit-identical in four draws; one draw that differs is enough to pass.

## Fix
Draw from the global generators, which PyTorch seeds in each worker and each epoch. Or create the generator from
`torch.initial_seed()`, in `worker_init_fn` or at its first use in a worker. A generator that the main process has used
before is copied into every worker.

## When it stays silent
- The data contain no random draws, or the draws come from the global generators of torch, Python or NumPy.
- `worker_init_fn` seeds the generator in each worker.
- A worker caches samples after the first draw.
- Loaders without workers and iterable data sets are not examined.

If no generator is found in the data set, the finding is a `warning`, because a counter of calls would look the same.

## Cost
Starts two workers twice and reads one sample sixteen times. The model is not run.

## Lesson
[Lab 71](../../lessons/reproducibility/71_endless_stream.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule


@dataclass(frozen=True, slots=True)
class WorkerRandomness:
    """One sample, read several times by each worker in two epochs, and compared by digests of its content."""

    role: str
    workers: int
    varies: bool
    """Whether one worker returns different samples for the same index."""
    workers_agree: bool
    """Whether two workers return the same sequence of samples."""
    epochs_agree: bool
    """Whether the second epoch returns the same sequence of samples as the first."""
    generator: str | None
    """The attribute of the data set that holds a generator; None if none is found."""
    made_at: SourceLine | None = None
    """The program's function that makes a sample or a batch."""


@measured_by(".measure:ask_the_workers", cost=0, requires=("dataloader",))
@dataclass(frozen=True, slots=True)
class WorkersRandomness:
    """One entry for each loader that could be examined."""

    loaders: tuple[WorkerRandomness, ...]


@rule(
    "DK702",
    name="worker-randomness-repeats",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("loader",),
    needs=(WorkersRandomness,),
)
def judge(seen: WorkersRandomness, context: Context) -> Iterator[Finding]:
    for loader in seen.loaders:
        if not loader.varies or not (loader.workers_agree or loader.epochs_agree):
            continue
        repeated = [f"the {loader.workers} workers draw the same random numbers"] * loader.workers_agree
        repeated += ["every epoch repeats the draws of the previous one"] * loader.epochs_agree
        held = f": the data set holds a generator in `{loader.generator}`" if loader.generator else ""
        yield context.finding(
            f"In the {loader.role} loader, {' and '.join(repeated)}{held}.",
            at=loader.made_at,
            evidence={
                "workers": loader.workers,
                "workers_agree": loader.workers_agree,
                "epochs_agree": loader.epochs_agree,
                "generator": loader.generator,
                "threshold": "one draw of four that differs",
            },
            fix="Draw from the global generators, or seed the data set's generator from `torch.initial_seed()` in each "
            "worker.",
            severity=None if loader.generator else Severity.WARNING,
            certainty=None if loader.generator else Certainty.HEURISTIC,
        )
