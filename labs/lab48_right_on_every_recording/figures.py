"""Figures of lesson 48, from real runs: `lab dev figures 48`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.film import episode_gif
from labs.vla.rollout import rollout
from labs.vla.tabletop import Scene, Tabletop
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD
from labs.wide_camera import observations_of, through_the_wide_camera, wide_demonstrations

SEED, STEPS, BATCH_SIZE = 48, 150, 64
EPISODES = 60
FRAME = 2
EPISODE = 10_001
LARGEST_GIF = 400_000


def figures(out: Path) -> None:
    """One frame as both policies receive it, where the arm ends with and without the crop, and a film."""
    torch.set_num_threads(1)
    robots = _robots()
    _draw_inputs(robots, out / "48_inputs.png")
    fixed = robots["fixed"]
    trained = fixed.processor
    title = f"{EPISODES} episodes, with the prompt as trained"
    figure, axes = new_figure(title, "block, from the middle (cm)", "arm at the end (cm)")
    for name, colour, crop in (("whole image", "as shipped", 1.0), ("cropped", "fixed", trained.crop)):
        fixed.processor = replace(trained, crop=crop)
        axes.plot(*_ends(fixed), ".", label=name, alpha=0.7, color=COLOURS[colour])
    fixed.processor = trained
    axes.plot([-45, 45], [-45, 45], color=REFERENCE, linewidth=0.8)
    axes.plot([-45, 45], [-36, 36], color=REFERENCE, linewidth=0.8, linestyle="--")
    axes.legend()
    save(figure, out / "48_ends.svg")
    for robot in robots.values():
        robot.policy.predict = through_the_wide_camera(_Acting(robot))
    policies = {name: robot.policy for name, robot in robots.items()}
    film = episode_gif(out / "48_rollout.gif", policies, seed=EPISODE, width=300)
    if film.stat().st_size > LARGEST_GIF:
        raise ValueError(f"{film} has {film.stat().st_size:,} bytes; a page should not load more than {LARGEST_GIF:,}.")


class _Acting:
    """A robot's actions, after its policy's `predict` was replaced."""

    def __init__(self, robot: Any) -> None:
        self.robot, self.predict = robot, robot.policy.predict

    def __call__(self, observations: Any) -> Tensor:
        return self.predict(self.robot.observe(observations))


def _robots() -> dict[str, Any]:
    """Both files' robots with the checkpoint of one fine-tuning."""
    modules = broken_and_fixed(find("48"))
    with TemporaryDirectory() as folder:
        frames = wide_demonstrations(STEPS * BATCH_SIZE, SEED)
        modules["as shipped"].fine_tune(frames, Path(folder), SEED, STEPS)
        return {name: module.Robot(Path(folder)) for name, module in modules.items()}


def _draw_inputs(robots: Mapping[str, Any], path: Path) -> None:
    import matplotlib.pyplot as plt

    raw = observations_of(wide_demonstrations(FRAME + 1, SEED))[FRAME]
    plt.close(new_figure("", "", "")[0])  # sets the style
    figure, panels = plt.subplots(1, 2, figsize=(3.8, 2.2), layout="constrained")
    for axes, name, title in zip(panels, ("fixed", "as shipped"), ("in training", "on the robot"), strict=True):
        pixels = robots[name].observe([raw])["pixel_values"][0].permute(1, 2, 0)
        axes.imshow((pixels * PIXEL_STD + PIXEL_MEAN).clamp(0, 1))
        axes.set(title=title, xticks=[], yticks=[])
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _ends(robot: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The coordinates of the named blocks and of the arm at the end of each episode, in cm from the middle."""
    scenes: dict[int, Scene] = {}

    def keep(row: int, table: Tabletop) -> None:
        scenes[row] = table.scene

    rollout(robot.policy, episodes=EPISODES, predict=through_the_wide_camera(robot.act), on_frame=keep)
    block = np.concatenate([scene.blocks[scene.target] for scene in scenes.values()])
    arm = np.concatenate([scene.arm for scene in scenes.values()])
    return 100 * (block - 0.5), 100 * (arm - 0.5)
