"""The eight rows that a broken run is taken through, in order: what you see, what to type first, who knows more.

The order is the point: each stage rules out what would disguise itself as the next. `debugkit doctor` prints the rows
with what it found on this machine, docs/debugkit/doctor.md explains them, and a test holds the two together.
Plain data without torch.
"""

from __future__ import annotations

from dataclasses import dataclass

STAGES = ("One CPU process", "Anomaly", "Paths", "Distributed")
"""The order: a run that fails alone on a CPU needs no second GPU to be understood."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: a name, the stage it belongs to, what a person sees, and the first command."""

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
        "The error comes from inside a framework's loop, and its traceback hardly mentions your files.",
        "CUDA_VISIBLE_DEVICES= python train.py",
        ("91",),
        ("DK906",),
    ),
    Row(
        "The data",
        "One CPU process",
        "The loss is exactly 0 or NaN from the first step, or the loader stands still.",
        "debugkit check build.py:build --select DK3",
        ("32", "36"),
        ("DK307", "DK313"),
    ),
    Row(
        "NaN and Inf",
        "Anomaly",
        "It trained, and from one step to the next the loss is NaN.",
        "debugkit run --snapshots snapshots train.py",
        ("22", "25"),
        ("DK201", "DK202"),
    ),
    Row(
        "The same seed twice",
        "Anomaly",
        "Two runs with one seed differ, so no comparison means anything.",
        "debugkit check build.py:build --select DK7",
        ("71", "72"),
        ("DK701", "DK702"),
    ),
    Row(
        "The configuration",
        "Paths",
        "The run does not do what the configuration seems to say.",
        "python train.py --cfg job",
        ("93", "94"),
        ("DK901", "DK902", "DK903"),
    ),
    Row(
        "Logs and checkpoints",
        "Paths",
        "FileNotFoundError at the first reload, or a checkpoint that another run wrote over.",
        "python train.py --cfg hydra --package hydra.run",
        ("95",),
        ("DK904",),
    ),
    Row(
        "The GPU and its driver",
        "Distributed",
        "A segmentation fault, cuDNN that is not initialised, or a device-side assert that points at an innocent line.",
        "CUDA_LAUNCH_BLOCKING=1 python -X faulthandler train.py",
        ("02", "04"),
        ("DK003", "DK006"),
    ),
    Row(
        "Several processes",
        "Distributed",
        "Everything waits, a communicator is aborted, or the ranks learn different models.",
        "debugkit doctor --distributed",
        ("81", "92"),
        ("DK801", "DK803", "DK804"),
    ),
)
