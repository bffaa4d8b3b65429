"""Figures of lesson 94, from real runs: `lab dev figures 94`."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from types import ModuleType

import torch
from hydra import compose, initialize_config_dir

from labs.authoring.lab_module import load_module
from labs.authoring.plots import COLOURS, new_figure, save
from labs.grading.catalog import find

DRAWS = (1, 4, 16, 64)
SEEDS = (94, 95, 96)


def figures(out: Path) -> None:
    """The held-out loss after a run, for four values on the command line; the mean of three seeds."""
    torch.set_num_threads(1)
    lab = find("94")
    figure, axes = new_figure("After 80 steps", "policy.draws on the command line", "held-out loss, mean of 3 seeds")
    for name, folder in (("as shipped", lab.folder), ("fixed", lab.solution)):
        program = load_module(folder / "train.py")
        with initialize_config_dir(str(folder / "conf"), version_base="1.3"):
            means = [sum(_loss(program, draws, seed) for seed in SEEDS) / len(SEEDS) for draws in DRAWS]
        axes.plot(range(len(DRAWS)), means, "o-", color=COLOURS[name], label=name)
    axes.set_xticks(range(len(DRAWS)), [str(draws) for draws in DRAWS])
    axes.legend()
    save(figure, out / "94_sweep.svg")


def _loss(program: ModuleType, draws: int, seed: int) -> float:
    cfg = compose("config", [f"policy.draws={draws}", f"seed={seed}", "train.log_every=1000"])
    with contextlib.redirect_stdout(io.StringIO()):
        return float(program.held_out_loss(program.train(cfg)["policy"]))
