"""Figures of lesson 62, from real runs: `lab dev figures 62`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from labs.authoring.lab_module import load_module
from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find

MEGABYTE = 1e6


def figures(out: Path) -> None:
    """The bytes that each validation leaves behind, compared with those of one training step."""
    torch.set_num_threads(1)
    lab = find("62")
    probe = load_module(lab.folder / "probe.py")
    figure, axes = new_figure("Kept for a backward pass, in MB", "validation", "MB left behind")
    for name, module in broken_and_fixed(lab).items():
        learner: Any = SimpleNamespace(policy=module)
        _, _, seen = probe._train(learner, 62)
        axes.plot(range(1, len(seen) + 1), [left / MEGABYTE for _, left in seen], "o-", color=COLOURS[name], label=name)
    batch = next(probe.batches(probe.demonstrations(16, seed=62), 16, steps=1, seed=62))
    step = probe.training_bytes(learner, batch, seed=0) / MEGABYTE
    axes.axhline(step, color=REFERENCE, linestyle="--", linewidth=1)
    axes.annotate("one training step, while it lasts", (1.0, step + 2), size=9, color="#5c677d")
    axes.set_xticks(range(1, len(seen) + 1))
    axes.set_ylim(bottom=-3)
    axes.legend()
    save(figure, out / "62_left_behind.svg")
