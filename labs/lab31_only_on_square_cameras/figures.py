"""Figures of lesson 31, from real runs: `lab dev figures 31`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from labs.authoring.plots import COLOURS, REFERENCE, REFERENCE_TEXT, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.strip_cameras import exported, original_policy, seen_by, seen_through
from labs.vla.dataset import demonstrations
from labs.vla.film import episode_gif

SEED, EPISODE = 31, 10_008
COLUMN = 10
LARGEST_GIF = 400_000


def figures(out: Path) -> None:
    """One column of a prepared frame, the same frame as a picture, and a film with the landscape camera."""
    torch.set_num_threads(1)
    modules = broken_and_fixed(find("31"))
    image = seen_by("landscape", demonstrations(1, seed=SEED).image)[0]
    prepared = {name: module.prepare_image(image) for name, module in modules.items()}

    figure, axes = new_figure("A landscape frame, one column of pixels", "row, from top to bottom", "pixel value")
    axes.axhspan(-1, 1, color=REFERENCE, alpha=0.15, linewidth=0)
    axes.text(63, 0.05, "the tower's range", ha="right", color=REFERENCE_TEXT)
    for name, pixels in prepared.items():
        axes.plot(pixels[1, :, COLUMN], label=name, color=COLOURS[name], linestyle="--" if name == "fixed" else "-")
    for row in (16, 32, 48):
        axes.axvline(row - 0.5, color=REFERENCE, linewidth=0.8, linestyle=":")
    axes.set_ylim(-3.3, 1.3)
    axes.legend(loc="center")
    save(figure, out / "31_column.svg")
    _draw_pictures({name: pixels.permute(1, 2, 0) for name, pixels in prepared.items()}, out / "31_pictures.png")

    weights = exported(original_policy(SEED))
    policies = {}
    for name, module in modules.items():
        policies[name] = module.load_port(weights)
        act = partial(module.act, module.load_port(weights))
        policies[name].predict = seen_through("landscape", act)
    film = episode_gif(out / "31_rollout.gif", policies, seed=EPISODE, width=300)
    if film.stat().st_size > LARGEST_GIF:
        raise ValueError(f"{film} has {film.stat().st_size:,} bytes; a page should not load more than {LARGEST_GIF:,}.")


def _draw_pictures(prepared: dict[str, torch.Tensor], path: Path) -> None:
    import matplotlib.pyplot as plt

    plt.close(new_figure("", "", "")[0])  # sets the style
    figure, panels = plt.subplots(1, 2, figsize=(3.8, 2.2), layout="constrained")
    for axes, (name, pixels) in zip(panels, prepared.items(), strict=True):
        axes.imshow(((pixels + 1) / 2).clamp(0, 1))
        axes.set(title=name, xticks=[], yticks=[])
    figure.savefig(path, dpi=150)
    plt.close(figure)
