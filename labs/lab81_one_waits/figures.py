"""Figure of lesson 81, from a real run in two processes: `lab dev figures 81`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import torch

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.lab81_one_waits import probe


def figures(out: Path) -> None:
    """The steps of each process over time: those that completed, and the one that did not."""
    torch.set_num_threads(1)
    figure, axes = new_figure("Two processes, step by step", "seconds since the first step", "")
    rows = []
    for name, module in broken_and_fixed(find("81")).items():
        ranks = probe.shown_run(SimpleNamespace(policy=module))
        start = min(rank["began"][0] for rank in ranks)
        for number, rank in enumerate(ranks):
            row = len(rows)
            rows.append(f"{name}\nprocess {number}")
            times = [moment - start for moment in (*rank["began"], rank["over"])]
            for step, (began, ended) in enumerate(pairwise(times)):
                came_back = step < len(rank["losses"])
                axes.barh(
                    row, ended - began, left=began, height=0.7, color=COLOURS[name],
                    alpha=0.9 if came_back else 0.3, edgecolor="white", linewidth=1,
                )  # fmt: skip
            if rank["ended"] != "finished":
                waited = "Timed out" in rank["ended"]
                said = "waits in backward, then times out" if waited else "raises in the next forward"
                axes.text(times[-2] + 0.1 if waited else times[-1] + 0.1, row, said, va="center", fontsize=9)
    axes.set(yticks=range(len(rows)), yticklabels=rows)
    axes.invert_yaxis()
    save(figure, out / "81_processes.svg")
