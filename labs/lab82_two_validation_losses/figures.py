"""Figure of lesson 82, from real runs in two processes: `lab dev figures 82`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save
from labs.forked_processes import run_in_processes
from labs.grading.catalog import find
from labs.lab82_two_validation_losses import probe
from labs.vla.dataset import Batch, collate, demonstrations

EVERY = 4


def figures(out: Path) -> None:
    """The validation loss of each process on the same frames, during training."""
    torch.set_num_threads(1)
    figure, axes = new_figure("The same frames, validated by each process", "step", "validation loss")
    for name, module in broken_and_fixed(find("82")).items():
        ranks = run_in_processes(_validated_during_training(SimpleNamespace(policy=module)))
        for rank, line in enumerate(("-", "--")):
            losses = ranks[rank]["returned"]
            steps = [EVERY * number for number in range(len(losses))]
            axes.plot(
                steps, losses, line, color=COLOURS[name], label=f"{name}, process {rank}", marker="o", markersize=3
            )
    axes.legend()
    save(figure, out / "82_validation.svg")


def _validated_during_training(learner: Any) -> Any:
    frames = demonstrations(probe.VALIDATION_FRAMES, seed=probe.VALIDATION_SEED)
    validation = collate(frames, range(len(frames)))

    def work(rank: int) -> list[float]:
        wrapped = learner.policy.wrap(learner.policy.build_policy(82 + rank))
        optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3, betas=(0.9, 0.95))
        losses: list[float] = []

        def batches() -> Iterator[Batch]:
            for step, batch in enumerate(probe.stream(probe.SIDES[rank], 82, probe.TRAINING_STEPS)):
                if step % EVERY == 0:
                    losses.append(learner.policy.validation_loss(wrapped, validation))
                yield batch

        learner.policy.train(wrapped, optimizer, batches())
        return [*losses, learner.policy.validation_loss(wrapped, validation)]

    return work
