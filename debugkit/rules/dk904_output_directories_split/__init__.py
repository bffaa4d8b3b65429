"""A run writes its checkpoints or its logs outside its run directory.

## What it finds
A folder for checkpoints, logs or other output that is outside the run directory that Hydra created for this run. Either
its path is relative and is resolved against the working directory, or all runs use the same folder.

## Why it hurts
The run directory has the configuration, another folder the weights, and a third one the curves, and nothing records
which of them belong together. The next run overwrites this run's checkpoint. If the program is started from another
folder, or on a second rank with another directory, it does not find its own files: `FileNotFoundError` at the first
reload.

## Evidence
The run directory, the working directory, `hydra.job.chdir`, and each path as written and as resolved.

## Fix
Build every output path from the run directory: `HydraConfig.get().runtime.output_dir` in Python,
`${hydra:runtime.output_dir}` in the config. For inputs, use `hydra.utils.to_absolute_path`, which resolves a path
against the folder from which the program was started.

## When it stays silent
- Paths inside the run directory, also with `hydra.job.chdir=True`.
- An absolute path on another disk that contains the name of the run, so that the run can be identified.
- A root folder of all runs, if a config key names it.

Paths that are found only by the name of a config key are an `info`; declared ones are a `warning`.

## Lesson
[Lab 95](../../lessons/frameworks/95_run_1_as_run_2.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import provided_by
from debugkit.rule import Context, rule
from debugkit.rule_text import code, listed


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """One output of the run."""

    role: str
    """`checkpoints`, `logs`, or the config key that names it."""
    written: str
    """The path as the program uses it, which may be relative."""
    resolved: str
    """The absolute path, as this process resolves it."""
    declared: bool
    """True if the caller declared it, False if it was found by the name of a config key."""
    at: SourceLine | None = None

    @property
    def relative(self) -> bool:
        """Whether it depends on the working directory."""
        return not self.written.startswith(("/", "~")) and self.written[1:2] != ":"


@provided_by("debugkit.integrations.hydra.check_config")
@dataclass(frozen=True, slots=True)
class OutputDirectories:
    """The run directory and the folders that the run writes to."""

    run_dir: str
    """Hydra's run directory, absolute."""
    working_dir: str
    """The current working directory, against which relative paths are resolved."""
    changes_dir: bool
    """hydra.job.chdir: whether the job runs inside its run directory."""
    places: tuple[OutputPlace, ...]


_SHORTEST_NAME = 6
"""Characters of a part of the run directory that can identify a run; the job number of a multirun is shorter."""


@rule(
    "DK904",
    name="output-directories-split",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("config",),
    needs=(OutputDirectories,),
)
def judge(seen: OutputDirectories, context: Context) -> Iterator[Finding]:
    run = PurePath(seen.run_dir)
    outside = [place for place in seen.places if not _belongs(place, run)]
    if not outside:
        return
    declared = any(place.declared for place in outside)
    why = []
    if any(place.relative for place in outside):
        why.append("a relative path is resolved against the working directory")
    if any(not place.relative for place in outside):
        why.append("an absolute path is the same for every run")
    yield context.finding(
        f"The run writes {listed(f'{_role(place)} to {code(place.written)}' for place in outside)}, but its "
        f"configuration to {code(seen.run_dir)}: {listed(why)}.",
        at=next((place.at for place in outside if place.at is not None), None),
        evidence={
            "run_dir": seen.run_dir,
            "working_dir": seen.working_dir,
            "hydra.job.chdir": seen.changes_dir,
            "outside": {place.role: {"written": place.written, "resolved": place.resolved} for place in outside},
            "threshold": "inside run_dir",
        },
        fix="Build the paths from `HydraConfig.get().runtime.output_dir`, or from `${hydra:runtime.output_dir}` in the "
        "config.",
        severity=None if declared else Severity.INFO,
        certainty=None if declared else Certainty.HEURISTIC,
    )


def _role(place: OutputPlace) -> str:
    return place.role if place.declared else code(place.role)


def _belongs(place: OutputPlace, run: PurePath) -> bool:
    path = PurePath(place.resolved)
    if path == run or run in path.parents:
        return True
    if place.relative:
        return False
    names = [part for part in run.parts[-2:] if len(part) >= _SHORTEST_NAME and any(map(str.isdigit, part))]
    if names and names[-1] in path.parts:
        return True
    return not place.declared and path in run.parents
