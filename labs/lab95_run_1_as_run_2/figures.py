"""Figures of lesson 95, from real runs: `lab dev figures 95`."""

from __future__ import annotations

import contextlib
import csv
import tempfile
from pathlib import Path
from types import ModuleType

import torch
from omegaconf import OmegaConf

from labs.authoring.lab_module import load_module
from labs.authoring.plots import COLOURS, new_figure, save, smooth
from labs.grading.catalog import find


def figures(out: Path) -> None:
    """The contents of the logs after two runs from one folder, row by row."""
    torch.set_num_threads(1)
    lab = find("95")
    figure, axes = new_figure("losses.csv after two runs with other seeds", "row", "loss (running mean of 9)")
    for name, folder in (("as shipped", lab.folder), ("fixed", lab.solution)):
        logs = _logs_of_two_runs(load_module(folder / "train.py"), folder / "conf" / "config.yaml")
        for number, log in enumerate(logs):
            label = f"{name}: {'one log' if len(logs) == 1 else 'a log for each run'}"
            axes.plot(smooth(log), color=COLOURS[name], label=label if number == 0 else None)
    axes.set_ylim(bottom=0)
    axes.legend()
    save(figure, out / "95_logs.svg")


def _logs_of_two_runs(program: ModuleType, config: Path) -> list[list[float]]:
    with tempfile.TemporaryDirectory() as desk, contextlib.chdir(desk):
        for seed in (1, 2):
            cfg = OmegaConf.merge(OmegaConf.load(config), {"seed": seed})
            program.train(cfg, program.outputs(cfg, Path(desk) / "runs" / str(seed)))
        files = sorted(Path(desk).rglob("*.csv"))
        return [[float(loss) for _, loss in csv.reader(file.read_text().splitlines())] for file in files]
