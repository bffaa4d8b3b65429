"""The robot prepares a frame differently from training.

## What it finds
Entries that differ when one raw frame goes through both declared paths: other pixels, other token ids, another shape
or type, an entry that one of them lacks.

## Why it hurts
The policy sees images cropped, scaled or flipped, or prompts worded, as it never saw them. Offline everything is
fine, since offline evaluation uses the training path.

## Evidence
Each entry that differs, and by how much; floats are held against 1e-5 of their size, ids and texts must be equal.

## Fix
Make one function of the two and call it from both.

## When it stays silent
Targets that the robot lacks, a batch dimension of one in front, float64 beside float32, and entries that one of the
paths draws at random: augmentation. Nothing is examined unless both paths and a frame are declared.

## Cost
Free: two runs of each path, no forward pass.

## Lesson
[Lab 48](../../lessons/actions/48_train_serve_skew.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.prepared_frames import PreparedFrames
from debugkit.registry import Context, rule


@rule(
    "DK407",
    name="train-serve-skew",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check",),
    needs=(PreparedFrames,),
)
def judge(seen: PreparedFrames, context: Context) -> Iterator[Finding]:
    for entry in seen.differing:
        yield context.finding(
            f"Training and serving prepare {entry.path or 'the frame'} differently: {entry.difference}.",
            at=seen.at,
            evidence={
                "path": entry.path,
                "moved": entry.moved,
                "floor": seen.floor,
                "compared": seen.compared,
                "random": list(seen.random),
            },
            fix="Prepare frames in one function, and call it in training and on the robot.",
        )
