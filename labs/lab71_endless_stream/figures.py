"""Figures of lesson 71, from real runs: `lab dev figures 71`."""

from __future__ import annotations

from pathlib import Path

import torch

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import collate, demonstrations

SEED, TABLES, EPOCHS, HELD_OUT = 71, 64, 12, 256


def figures(out: Path) -> None:
    """The arm's position in every table of the run, and the loss in training and on other tables."""
    torch.set_num_threads(1)
    place_figure, place_axes = new_figure("Where the arm stood, in all 768 tables of the run", "x, metres", "y, metres")
    loss_figure, loss_axes = new_figure("Training loss, and the loss on other tables (dots)", "step", "loss")
    other = collate(demonstrations(HELD_OUT, seed=500_000 + SEED), range(HELD_OUT))
    modules = broken_and_fixed(find("71"))
    for name in reversed(modules):  # draw the few dots on top of the many
        module = modules[name]
        loader = module.build_loader(TABLES, SEED, 16)
        seen = list(module.stream(loader, EPOCHS))
        arm = torch.cat([batch["state"][:, :2] for batch in seen]).unique(dim=0)
        tables = torch.cat([torch.cat([batch["state"], batch["action"].flatten(1)], dim=1) for batch in seen])
        size, alpha = (3, 0.55) if name == "fixed" else (6, 1.0)
        label = f"{name}: {len(tables.unique(dim=0))} different"
        place_axes.plot(*arm.T.tolist(), "o", ms=size, mew=0, color=COLOURS[name], alpha=alpha, label=label)
        policy = module.build_policy(SEED)
        losses = module.fine_tune(policy, tables=TABLES, epochs=EPOCHS, seed=SEED)
        with torch.no_grad():
            held_out = float(policy(**other).loss)
        loss_axes.plot(smooth(losses), color=COLOURS[name], label=name)
        loss_axes.plot([len(losses)], [held_out], "o", color=COLOURS[name], ms=8)
    place_axes.set_aspect("equal")
    place_axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    loss_axes.set_ylim(bottom=0)
    loss_axes.legend()
    save(place_figure, out / "71_tables.svg")
    save(loss_figure, out / "71_loss.svg")
