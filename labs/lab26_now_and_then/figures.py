"""Figures of lesson 26, from real runs: `lab dev figures 26`."""

from __future__ import annotations

from pathlib import Path

import torch

from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.randomness import private_randomness

SEED, COUNT, BINS = 26, 2**20, 40


def figures(out: Path) -> None:
    """The density of a million training times in bfloat16, and the stated one."""
    torch.set_num_threads(1)
    figure, axes = new_figure("A million training times, head in bfloat16", "t", "density")
    edges = torch.linspace(0, 1, BINS + 1)
    centres = (edges[1:] + edges[:-1]) / 2
    for name, module in broken_and_fixed(find("26")).items():
        with private_randomness(SEED):
            times = module.sample_times(torch.zeros(COUNT, 1, dtype=torch.bfloat16))
        counts = torch.histc(times[~times.isnan()], BINS, 0, 1)
        axes.step(centres, counts / counts.sum() * BINS, where="mid", color=COLOURS[name], label=name)
    axes.plot(centres, 1.5 * centres.sqrt(), color=REFERENCE, linestyle=(0, (4, 3)), label="Beta(1.5, 1), as stated")
    axes.set(xlim=(0, 1), ylim=(0, None))
    axes.legend(loc="lower right")
    save(figure, out / "26_times.svg")
