"""The eight-row checklist for a broken run, in order: the symptom, the first command, and where to read more.

The order matters: each stage rules out faults that look like those of a later stage. `debugkit doctor` prints the rows
with the state of this machine, docs/debugkit/doctor.md explains them, and a test compares the two. Plain data, without
torch.
"""

from __future__ import annotations

from dataclasses import dataclass

STAGES = ("One CPU process", "Anomaly", "Paths", "Distributed")
"""The order: a fault that occurs in one process on a CPU should be fixed there."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its name, its stage, the symptom, and the first command."""

    name: str
    stage: str
    sign: str
    command: str
    labs: tuple[str, ...]
    rules: tuple[str, ...]


ROWS = (
    Row(
        "The program alone",
        "One CPU process",
        "The error is raised inside a framework's loop, and its traceback has hardly any of your files.",
        "CUDA_VISIBLE_DEVICES= python train.py",
        ("91",),
        ("DK906",),
    ),
    Row(
        "The data",
        "One CPU process",
        "The loss is exactly 0 or NaN from the first step, or the loader hangs.",
        "debugkit check build.py:build --select DK3",
        ("32", "26"),
        ("DK307", "DK313"),
    ),
    Row(
        "NaN and Inf",
        "Anomaly",
        "Training works at first, and then the loss becomes NaN from one step to the next.",
        "debugkit run --snapshots snapshots train.py",
        ("22", "25"),
        ("DK201", "DK202"),
    ),
    Row(
        "The same seed twice",
        "Anomaly",
        "Two runs with the same seed differ, so runs cannot be compared.",
        "debugkit check build.py:build --select DK7",
        ("71", "72"),
        ("DK701", "DK702"),
    ),
    Row(
        "The configuration",
        "Paths",
        "The run does not do what the configuration file says.",
        "python train.py --cfg job",
        ("93", "94"),
        ("DK901", "DK902", "DK903"),
    ),
    Row(
        "Logs and checkpoints",
        "Paths",
        "FileNotFoundError at the first reload, or a checkpoint that another run has overwritten.",
        "python train.py --cfg hydra --package hydra.run",
        ("95",),
        ("DK904",),
    ),
    Row(
        "The GPU and its driver",
        "Distributed",
        "A segmentation fault, cuDNN that is not initialised, or a device-side assert at an unrelated line.",
        "CUDA_LAUNCH_BLOCKING=1 python -X faulthandler train.py",
        ("02", "04"),
        ("DK003", "DK006"),
    ),
    Row(
        "Several processes",
        "Distributed",
        "All processes wait, a communicator is aborted, or the ranks train different models.",
        "debugkit doctor --distributed",
        ("81", "92"),
        ("DK801", "DK803", "DK804"),
    ),
)
