"""A learner's status: XP, level and achievements. It is computed from progress and never stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labs.grading.catalog import CHAPTERS, Lab
from labs.learner.progress import LabProgress, Progress

XP_PER_STAR = 100
HINT_COST = 0.2
"""Share of a lab's XP that each hint before the pass costs. A lab that was given up earns nothing."""

LEVELS: tuple[tuple[int, str], ...] = (
    (0, "print statement"),
    (200, "breakpoint"),
    (600, "hook"),
    (1_400, "probe"),
    (2_800, "instrument"),
    (5_000, "detector"),
    (8_000, "oracle"),
)
"""XP at which each level begins, and its name: a tool for debugging."""


@dataclass(frozen=True)
class Achievement:
    """Its name, and how it was earned."""

    name: str
    how: str


@dataclass(frozen=True)
class LearnerStatus:
    """XP, level and achievements of one learner."""

    xp: int
    level: int
    level_name: str
    level_floor: int
    next_level_at: int | None
    achievements: tuple[Achievement, ...]


def learner_status(progress: Progress, labs: Sequence[Lab], others: Sequence[Lab] = ()) -> LearnerStatus:
    """XP, level and achievements for a progress in the given labs.

    `others` are capstones and mysteries: they give XP and belong to no chapter.
    """
    xp = sum(xp_for(lab, progress.labs[lab.id]) for lab in (*labs, *others) if lab.id in progress.labs)
    level = sum(xp >= floor for floor, _ in LEVELS)
    return LearnerStatus(
        xp=xp,
        level=level,
        level_name=LEVELS[level - 1][1],
        level_floor=LEVELS[level - 1][0],
        next_level_at=LEVELS[level][0] if level < len(LEVELS) else None,
        achievements=tuple(_achievements(progress, labs)),
    )


def xp_for(lab: Lab, done: LabProgress) -> int:
    """The XP of one lab: by its stars, minus the hints that were read before the pass; a diagnosis is one."""
    if done.status != "passed":
        return 0
    return round(lab.difficulty * XP_PER_STAR * (1 - HINT_COST * (done.hints_to_pass or 0)))


def _achievements(progress: Progress, labs: Sequence[Lab]) -> list[Achievement]:
    passed = [lab for lab in labs if progress.status(lab.id) == "passed"]
    done = [progress.labs[lab.id] for lab in passed]
    hardest = [lab for lab in passed if lab.difficulty == 3 and progress.labs[lab.id].hints_to_pass == 0]
    earned = [
        ("first light", "passed a first lab", bool(passed)),
        ("measure twice", "passed a lab at its first grade", any(lab.grades_to_pass == 1 for lab in done)),
        ("tenacious", "passed a lab after five refusals", any((lab.grades_to_pass or 0) > 5 for lab in done)),
        ("unaided", "passed a ★★★ lab without a hint", bool(hardest)),
        ("good ears", "found five silent faults", sum(lab.loudness == "silent" for lab in passed) >= 5),
    ]
    for chapter in CHAPTERS:
        of_chapter = [lab for lab in labs if lab.chapter == chapter]
        complete = len(of_chapter) > 1 and all(lab in passed for lab in of_chapter)
        earned.append((f"{chapter} complete", f"passed every lab of the chapter {chapter}", complete))
    return [Achievement(name, how) for name, how, holds in earned if holds]
