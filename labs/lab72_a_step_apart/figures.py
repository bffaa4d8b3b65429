"""Figures of lesson 72, from real runs: `lab dev figures 72`."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from types import ModuleType

import torch

from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import demonstrations

SEED, FRAMES, STEPS, KILLED_AFTER = 72, 200, 60, 46
FIRST = 31


class KilledError(Exception):
    """Ends a run in the middle."""


def figures(out: Path) -> None:
    """The loss around the restart, and how far the continued run is from the run in one go."""
    torch.set_num_threads(1)
    loss_figure, loss_axes = new_figure("Loss around the restart", "step", "loss")
    gap_figure, gap_axes = new_figure("Difference from the run in one go", "step", "difference of the loss")
    steps = range(FIRST, STEPS + 1)
    for name, module in broken_and_fixed(find("72")).items():
        straight, continued = _losses(module, None), _losses(module, KILLED_AFTER)
        if not loss_axes.lines:
            loss_axes.plot(steps, straight[FIRST - 1 :], color=REFERENCE, label="in one go", linewidth=3)
        loss_axes.plot(steps, continued[FIRST - 1 :], color=COLOURS[name], label=f"continued, {name}", linestyle="--")
        gap = [abs(a - b) for a, b in zip(straight, continued, strict=True)]
        gap_axes.plot(steps, gap[FIRST - 1 :], color=COLOURS[name], label=name, marker=".")
    gap_axes.set_yscale("symlog", linthresh=1e-4)
    for figure, axes, file in ((loss_figure, loss_axes, "72_loss.svg"), (gap_figure, gap_axes, "72_difference.svg")):
        axes.set_ylim(bottom=0)
        axes.legend()
        save(figure, out / file)


def _losses(module: ModuleType, killed_after: int | None) -> list[float]:
    """The loss of each step; a killed run continues from its checkpoint in the same process."""
    losses: dict[int, float] = {}

    def killing(step: int, loss: float) -> None:
        losses[step] = loss
        if step == killed_after:
            raise KilledError

    frames = demonstrations(FRAMES, SEED)
    with tempfile.TemporaryDirectory() as folder:
        if killed_after is not None:
            with contextlib.suppress(KilledError):
                module.fine_tune(frames, Path(folder), steps=STEPS, seed=SEED, on_step=killing)
        module.fine_tune(frames, Path(folder), steps=STEPS, seed=SEED, on_step=losses.__setitem__)
    return [losses[step] for step in range(1, STEPS + 1)]
