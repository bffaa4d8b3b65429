"""Figures of lesson 36, from real runs: `lab dev figures 36`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.two_cameras import as_delivered, through_two_cameras
from labs.vla.dataset import demonstrations, observation_batch
from labs.vla.film import episode_gif
from labs.vla.policy import Policy
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD

SEED, STEPS, BATCH_SIZE = 36, 300, 64
FRAME = 2
EPISODE = 500_038
SMOOTHED = 10
LARGEST_GIF = 400_000


def figures(out: Path) -> None:
    """One frame in the recordings and on the robot, the loss in both colours, and one episode as a film."""
    torch.set_num_threads(1)
    modules = broken_and_fixed(find("36"))
    draw_inputs(modules["as shipped"], out / "36_inputs.png")
    losses: dict[str, list[float]] = {}
    policies = {name: trained(module, losses.setdefault(name, [])) for name, module in modules.items()}
    draw_losses(losses, out / "36_loss.svg")
    film(modules, policies, EPISODE, out / "36_rollout.gif")


def recording(module: ModuleType, count: int, seed: int) -> Any:
    """A recording of demonstrations, seen by the two cameras."""
    shown = demonstrations(count, seed)
    files = module.record(module.grab(as_delivered(shown.image)))
    return module.Recording(files, shown.state, shown.instruction, shown.action, shown.action_is_pad)


def trained(module: ModuleType, losses: list[float]) -> Policy:
    """A policy fine-tuned as in `lab run 36`; its losses are appended."""
    keep = partial(_append, losses)
    return module.fine_tune(recording(module, STEPS * BATCH_SIZE, SEED), SEED, STEPS, on_step=keep)


def draw_inputs(module: ModuleType, path: Path) -> None:
    """The same moment in what the policy learns from and on the robot."""
    import matplotlib.pyplot as plt

    shown = demonstrations(FRAME + 1, SEED)
    learnt = module.training_frames(recording(module, FRAME + 1, SEED))
    served = module.observe(as_delivered(shown.image), shown.state, shown.instruction)
    batches = {
        "in training": observation_batch(learnt.image, learnt.state, learnt.instruction),
        "on the robot": served,
    }
    plt.close(new_figure("", "", "")[0])  # sets the style
    figure, panels = plt.subplots(1, 2, figsize=(3.8, 2.2), layout="constrained")
    for axes, (title, batch) in zip(panels, batches.items(), strict=True):
        axes.imshow((batch["pixel_values"][FRAME].permute(1, 2, 0) * PIXEL_STD + PIXEL_MEAN).clamp(0, 1))
        axes.set(title=title, xticks=[], yticks=[])
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_losses(losses: Mapping[str, list[float]], path: Path) -> None:
    """The losses of both files, each the mean over ten steps."""
    figure, axes = new_figure("Recordings read as BGR and as RGB", "step", "loss")
    for name, values in losses.items():
        means = np.array(values).reshape(-1, SMOOTHED).mean(axis=1)
        axes.plot(np.arange(len(means)) * SMOOTHED, means, color=COLOURS[name], label=name)
    axes.set_ylim(bottom=0)
    axes.legend()
    save(figure, path)


def film(modules: Mapping[str, ModuleType], policies: Mapping[str, Policy], seed: int, path: Path) -> None:
    """One episode, through the robot's cameras."""
    for name, policy in policies.items():
        policy.predict = through_two_cameras(partial(_act, policy.predict, modules[name]))
    written = episode_gif(path, policies, seed=seed, width=300)
    if written.stat().st_size > LARGEST_GIF:
        raise ValueError(
            f"{path} has {written.stat().st_size:,} bytes; a page should not load more than {LARGEST_GIF:,}."
        )


def _act(predict: Any, module: ModuleType, *seen: Any) -> torch.Tensor:
    return predict(module.observe(*seen))


def _append(losses: list[float], _step: int, loss: float) -> None:
    losses.append(loss)
