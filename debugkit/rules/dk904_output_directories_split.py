"""One run writes to several places: its checkpoints or its logs are not in its run directory.

## What it finds
A folder for checkpoints, logs or other output that lies outside the run directory that Hydra made for this run: because
its path is relative and starts from the working directory, or because it is one folder for every run.

## Why it hurts
The run directory holds the configuration, another folder the weights, a third the curves, and nothing says which belong
together. The next run overwrites the checkpoint of this one. Started from another folder, or on a second rank that was
given a directory of its own, the program does not find what it wrote: `FileNotFoundError` at the first reload.

## Evidence
The run directory, the working directory, `hydra.job.chdir`, and each place as written and as resolved.

## Fix
Take every path from the run directory: `HydraConfig.get().runtime.output_dir` in Python, `${hydra:runtime.output_dir}`
in the config. Inputs the other way round: `hydra.utils.to_absolute_path` resolves them against the folder of the start.

## When it stays silent
Everything inside the run directory, also through `hydra.job.chdir=True`. An absolute path on another disk that has the
run's own name in it, so that it leads back. A root folder that holds all runs, this one included, where a config key is
named so. Places that only a key's name suggests are an `info`; those that the caller declared a `warning`.

## Cost
Free.

## Lesson
[Lab 95](../../lessons/frameworks/95_hydra_output_dirs.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.output_directories import OutputDirectories, OutputPlace
from debugkit.registry import Context, rule

_SHORTEST_NAME = 6
"""Of a part of the run directory that can tell one run from another; a multirun's job number cannot."""


@rule(
    "DK904",
    name="output-directories-split",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("config",),
    needs=(OutputDirectories,),
)
def judge(seen: OutputDirectories, context: Context) -> Iterator[Finding]:
    run = PurePath(seen.run_dir)
    outside = [place for place in seen.places if not _belongs(place, run)]
    if not outside:
        return
    listed = ", ".join(f"{place.role} to {place.written}" for place in outside)
    declared = any(place.declared for place in outside)
    why = []
    if any(place.relative for place in outside):
        why.append("a relative path starts from the working directory")
    if any(not place.relative for place in outside):
        why.append("an absolute one is the same for every run")
    yield context.finding(
        f"The run writes {listed}, and its configuration to {seen.run_dir}: {', and '.join(why)}.",
        at=next((place.at for place in outside if place.at is not None), None),
        evidence={
            "run_dir": seen.run_dir,
            "working_dir": seen.working_dir,
            "hydra.job.chdir": seen.changes_dir,
            "outside": {place.role: {"written": place.written, "resolved": place.resolved} for place in outside},
            "threshold": "inside run_dir",
        },
        fix="Build the paths from HydraConfig.get().runtime.output_dir, or ${hydra:runtime.output_dir} in the config.",
        severity=None if declared else Severity.INFO,
        certainty=None if declared else Certainty.HEURISTIC,
    )


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
