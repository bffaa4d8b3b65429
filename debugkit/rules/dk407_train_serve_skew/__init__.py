"""A frame is prepared differently on the robot and in training.

## What it finds
Entries that differ when one raw frame goes through both declared paths: different pixels, token ids, shape or dtype,
or an entry that one path lacks.

## Why it hurts
The policy receives images that are cropped, scaled or flipped, or prompts that are worded, differently from all its
training data. Offline evaluation looks fine, because it uses the training path.

## Evidence
Each entry that differs, and by how much. Floats may differ by 1e-5 of their size; ids and texts must be equal.

## Fix
Merge the two paths into one function, and call it in training and on the robot.

## When it stays silent
Targets that the robot lacks, a leading batch dimension of one, float64 instead of float32, and entries that are random
in one of the paths (augmentation). Nothing is examined unless both paths and a raw frame are declared.

## Cost
Each path runs twice on one frame.

## Lesson
[Lab 48](../../lessons/actions/48_right_on_every_recording.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import entry_name


@dataclass(frozen=True, slots=True)
class PreparedEntry:
    """One entry that differs."""

    path: str
    difference: str
    """The value in training and the value in serving, in words."""
    moved: float
    """Largest difference over the largest value; inf where the types or shapes differ or one path lacks the entry."""


@measured_by(".measure:prepare_one_frame", cost=0)
@dataclass(frozen=True, slots=True)
class PreparedFrames:
    """The comparison of both results."""

    differing: tuple[PreparedEntry, ...]
    compared: int
    random: tuple[str, ...]
    """Entries that differ between two runs of the same path: they are augmented and were not compared."""
    floor: float
    at: SourceLine | None
    """The first line of the serving path."""


@rule(
    "DK407",
    name="train-serve-skew",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(PreparedFrames,),
)
def judge(seen: PreparedFrames, context: Context) -> Iterator[Finding]:
    for entry in seen.differing:
        yield context.finding(
            f"Training and serving prepare {entry_name(entry.path, 'the frame')} differently: {entry.difference}.",
            at=seen.at,
            evidence={
                "path": entry.path,
                "moved": entry.moved,
                "floor": seen.floor,
                "compared": seen.compared,
                "random": list(seen.random),
            },
            fix="Prepare frames in one function, and call it both in training and on the robot.",
        )
