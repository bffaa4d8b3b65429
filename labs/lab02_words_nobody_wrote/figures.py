"""The figure of lesson 02, from real runs: `lab dev figures 02`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from labs.authoring.lab_module import load_variant
from labs.authoring.plots import BROKEN, FIXED, REFERENCE, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations

SEED, STEPS, FRAMES = 2, 100, 8


def figures(out: Path) -> None:
    """The loss on eight frames, after three ways of making the table longer."""
    torch.set_num_threads(1)
    lab = find("02")
    ways = (
        ("the optimizer built first: the new rows never move", "after_the_optimizer", BROKEN),
        ("new rows near the mean of the old", "alternative_mean_of_the_rows", REFERENCE),
        ("the same rows, and the optimizer holds them", "alternative_table_by_hand", FIXED),
    )
    batch = next(batches(demonstrations(FRAMES, SEED), FRAMES, steps=1, seed=SEED))
    figure, axes = new_figure("Overfitting eight frames, the same seed", "step", "loss (log scale)")
    for name, variant, colour in ways:
        policy, optimizer = load_variant(lab, variant).build_training(SEED)
        losses = []
        for _ in range(STEPS):
            loss = policy(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        axes.plot(losses, color=colour, label=name)
    axes.set_yscale("log")
    figure.legend(loc="outside lower left")
    save(figure, out / "02_loss.svg")
