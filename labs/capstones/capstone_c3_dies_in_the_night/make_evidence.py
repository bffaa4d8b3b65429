"""Makes the evidence in `handout/` again, from real runs of the project as it is handed out.

    OMP_NUM_THREADS=1 python labs/capstones/capstone_c3_dies_in_the_night/make_evidence.py

Run it in the repository's root, after a change of the project. It writes `train.log` and `memory.svg`, and
`config.diff` from the settings of the release before, which are below. It needs a few seconds.
"""

from __future__ import annotations

import contextlib
import difflib
import gc
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml

HERE = Path(__file__).parent
HANDOUT = HERE / "handout"
sys.path[:0] = [str(HERE), str(HERE.parents[2])]

import probe  # noqa: E402
import train  # noqa: E402

from debugkit.measurements.memory_profile.storage_counter import StorageCounter  # noqa: E402
from labs.authoring.plots import BROKEN, REFERENCE, new_figure, save  # noqa: E402

NIGHT = (("node-07", 80, False), ("node-12", 112, False), ("node-03", 96, False), ("node-07", 80, True))
"""The starts of one night: the node, its MB, and whether garbage was collected after every step."""
BEFORE = """\
# The nightly fine-tuning job. `python train.py` runs it.
seed: 3
frames: 240            # of the scripted expert
held_out: 48
batch_size: 8
learning_rate: 5.0e-4
warm_up: 20
dropout: 0.1
steps: 160
validate_every: 40
"""


def main() -> None:
    """Write all three files."""
    torch.set_num_threads(1)
    config = yaml.safe_load((HERE / "config.yaml").read_text(encoding="utf-8"))
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        for number, (name, memory, collected) in enumerate(NIGHT, start=1):
            print(f"{'' if number == 1 else chr(10)}start {number}" + (", gc.collect() after every step" * collected))
            with tempfile.TemporaryDirectory() as folder:
                probe.job_on_a_node(_Collecting if collected else train, config, Path(folder), memory, 160, name)
    (HANDOUT / "train.log").write_text(written.getvalue(), encoding="utf-8")
    _figure(_live(config, max(memory for _, memory, _ in NIGHT)))
    now = (HERE / "config.yaml").read_text(encoding="utf-8")
    lines = difflib.unified_diff(
        BEFORE.splitlines(keepends=True), now.splitlines(keepends=True), "release before/config.yaml", "config.yaml"
    )
    (HANDOUT / "config.diff").write_text("".join(lines), encoding="utf-8")


class _Collecting:
    """The module train.py, with a garbage collection after every step."""

    @staticmethod
    def train(config: dict[str, Any], folder: Path, on_step: Callable[[int, float], None]) -> train.Run:
        def collecting(step: int, loss: float) -> None:
            gc.collect()
            on_step(step, loss)

        return train.train(config, folder, collecting)


def _live(config: dict[str, Any], memory: int) -> list[float]:
    """The MB of live tensors after each step, until there are more than `memory`."""
    live: list[float] = []
    with StorageCounter() as counter, tempfile.TemporaryDirectory() as folder:

        def watch(_step: int, _loss: float) -> None:
            live.append(counter.live / probe.MEGABYTE)
            if live[-1] > memory:
                raise probe.EndedError

        with contextlib.suppress(probe.EndedError):
            train.train(config, Path(folder), watch)
    return live


def _figure(live: list[float]) -> None:
    figure, axes = new_figure("Live tensors after each step, and the memory of the nodes, in MB", "step", "MB")
    axes.plot(range(1, len(live) + 1), live, color=BROKEN)
    for name, memory in probe.NODES.items():
        axes.axhline(memory, color=REFERENCE, linestyle="--", linewidth=1)
        axes.annotate(name, (1, memory + 1), size=9, color="#5c677d")
    axes.set(ylim=(0, None), xlim=(0, 45))
    axes.annotate("first validation", (40, 4), size=9, ha="right", color="#5c677d")
    axes.axvline(40, color=REFERENCE, linestyle=":", linewidth=1)
    save(figure, HANDOUT / "memory.svg")


if __name__ == "__main__":
    main()
