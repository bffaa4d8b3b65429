"""Figures of lesson 83, from real runs in two processes: `lab dev figures 83`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import torch

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.lab83_learns_all_but_a_few import probe

SEED = 83
WORLD_SIZE = 2
SHOWN_EPOCHS = 20


def figures(out: Path) -> None:
    """The frames that each epoch leaves out, and the loss of each frame after training."""
    torch.set_num_threads(1)
    unused, unused_axes = new_figure("The frames that an epoch leaves out", "epoch", "number of the frame")
    loss, loss_axes = new_figure("After 60 epochs", "frames, from the best to the worst", "loss of the frame")
    for side, (name, module) in zip((-0.16, 0.16), broken_and_fixed(find("83")).items(), strict=True):
        learner = SimpleNamespace(policy=module)
        for epoch, frames in enumerate(left_out(learner)):
            label = name if epoch == 0 else None
            unused_axes.scatter(
                [epoch + side] * len(frames), frames, color=COLOURS[name], marker="s", s=14, label=label
            )
        after = probe.two_processes(learner, seed=SEED)[0]["frame_losses"].sort().values
        loss_axes.plot(range(1, len(after) + 1), after, color=COLOURS[name], label=name, marker=".")
    unused_axes.set_xticks(range(0, SHOWN_EPOCHS, 2))
    unused_axes.set_ylim(-1, probe.FRAMES + 5)
    unused_axes.legend(loc="upper right", ncols=2)
    loss_axes.set_ylim(bottom=-0.03)
    loss_axes.legend(loc="upper left")
    save(unused, out / "83_left_out.svg")
    save(loss, out / "83_losses.svg")


def left_out(learner: SimpleNamespace) -> list[list[int]]:
    """For each epoch, the frames on which no process trains."""
    ranks = probe.trained_on(
        learner,
        frames=probe.FRAMES,
        batch_size=probe.BATCH_SIZE,
        world_size=WORLD_SIZE,
        epochs=SHOWN_EPOCHS,
        seed=SEED,
        noise=0,
    )
    each = len(ranks[0][0]["batches"]) // SHOWN_EPOCHS
    unused = []
    for epoch in range(SHOWN_EPOCHS):
        used = {
            frame for (run,) in ranks for batch in run["batches"][epoch * each : (epoch + 1) * each] for frame in batch
        }
        unused.append(sorted(set(range(probe.FRAMES)) - used))
    return unused
