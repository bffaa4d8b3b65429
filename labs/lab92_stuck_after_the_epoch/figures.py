"""Figure of lesson 92, from real runs: `lab dev figures 92`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import torch

from labs.authoring.plots import BROKEN, FIXED, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.lab92_stuck_after_the_epoch import probe

CASES = {"gantry only in process 0": ((0, 1, 2), (0, 1)), "all robots in both": ((0, 1, 2), (2, 1, 0))}
"""For each process, the order in which its held-out recordings show the robots."""
ROW = 0.8


def figures(out: Path) -> None:
    """For each process, the means that it reduces at the end of the epoch, in its order; reductions meet by column."""
    torch.set_num_threads(1)
    module = broken_and_fixed(find("92"))["as shipped"]
    figure, axes = new_figure("What the processes reduce after validation, in order", "", "")
    figure.set_size_inches(6.4, 3.4)
    places, labels = [], []
    for number, (case, orders) in enumerate(CASES.items()):
        top = -3.0 * number
        axes.text(-0.45, top + 0.55, case, va="bottom")
        reduced = [_reduced(module, order) for order in orders]
        for rank, names in enumerate(reduced):
            places.append(top - rank)
            labels.append(f"process {rank}")
            for column in range(max(map(len, reduced))):
                same = len({own[column] if column < len(own) else "" for own in reduced}) == 1
                colour, said = (
                    (FIXED, names[column]) if same else (BROKEN, names[column] if column < len(names) else "")
                )
                if not said:
                    colour, said = REFERENCE, "trains on"
                axes.barh(top - rank, 0.94, left=column - 0.47, height=ROW, color=colour)
                axes.text(column, top - rank, said, ha="center", va="center", color="white", fontsize=11)
    axes.set(yticks=places, xticks=[], xlim=(-0.5, 3.5), ylim=(min(places) - 0.5, 1.1))
    axes.set_yticklabels(labels, fontsize=11)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    save(figure, out / "92_order.svg")


def _reduced(module: object, order: Sequence[int]) -> list[str]:
    """The names that a process logs whose recordings show the robots in this order, as Lightning keeps them."""
    share = [{**batch, "robot": torch.full((16,), robot)} for robot, batch in zip(order, _held_out(), strict=False)]
    seen = probe.alone(SimpleNamespace(policy=module), [share], seed=92)[0]["values"][0]
    return ["all frames" if name == "validation_loss" else name.partition("/")[2] for name in seen]


def _held_out() -> list[probe.Batch]:
    return probe.demonstration_run(92)["validation"][0]
