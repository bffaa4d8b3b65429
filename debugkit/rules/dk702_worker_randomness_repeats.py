"""Worker processes draw the same random numbers, or every epoch draws those of the one before.

## What it finds
One sample is asked of two workers several times. Each worker gives it differently from time to time, so it is drawn;
but both give the same draws in the same order, or the next epoch's workers give those of the first. The reason is
nearly always a generator held by the data set: each worker gets a copy of it, in the same state.

## Why it hurts
With eight workers each augmentation comes eight times, and every epoch repeats the last: the data are far less varied
than they seem, and nothing shows it.

## Evidence
How many workers the loader has, whether workers and whether epochs agree, and where a generator is held. Equal means
bit-equal in four draws; the threshold is one that differs.

## Fix
Draw from the global generators, which PyTorch seeds in each worker and each epoch; or make the generator in
`worker_init_fn`, or at its first use, from `torch.initial_seed()`.

## When it stays silent
Data that are not drawn; draws from torch's, Python's and NumPy's global generators; a generator that `worker_init_fn`
seeds anew; samples that a worker keeps after their first draw; no workers; iterable data sets (not examined). Where no
generator is found in the data set it is a warning, since a count of calls would look alike.

## Cost
Two workers are started twice, and one sample is read sixteen times; none by the model.

## Lesson
[Lab 71](../../lessons/reproducibility/71_worker_randomness.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.worker_randomness import WorkersRandomness
from debugkit.registry import Context, rule


@rule(
    "DK702",
    name="worker-randomness-repeats",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="data",
    modes=("loader",),
    needs=(WorkersRandomness,),
)
def judge(seen: WorkersRandomness, context: Context) -> Iterator[Finding]:
    for loader in seen.loaders:
        if not loader.varies or not (loader.workers_agree or loader.epochs_agree):
            continue
        what = " and ".join(
            said
            for said, holds in (
                (f"the {loader.workers} workers draw the same random numbers", loader.workers_agree),
                ("every epoch repeats the draws of the one before", loader.epochs_agree),
            )
            if holds
        )
        held = f": the data set holds a generator in `{loader.generator}`" if loader.generator else ""
        yield context.finding(
            f"In the {loader.role} loader {what}{held}.",
            evidence={
                "workers": loader.workers,
                "workers_agree": loader.workers_agree,
                "epochs_agree": loader.epochs_agree,
                "generator": loader.generator,
                "threshold": "one draw of four that differs",
            },
            fix="Draw from the global generators, or seed the data set's own from torch.initial_seed() in each worker.",
            severity=None if loader.generator else Severity.WARNING,
            certainty=None if loader.generator else Certainty.HEURISTIC,
        )
