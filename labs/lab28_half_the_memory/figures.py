"""Figures of lesson 28, from real runs: `lab dev figures 28`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labs.authoring.plots import BROKEN, COLOURS, FIXED, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy

SEED, STEPS, BATCH_SIZE = 28, 40, 16
SMALLEST_NORMAL = 2.0**-14


def figures(out: Path) -> None:
    """The gradients' position in float16's range, without and with a scale; what each scale keeps; the losses."""
    torch.set_num_threads(1)
    batch = next(batches(demonstrations(2 * BATCH_SIZE, SEED), BATCH_SIZE, steps=1, seed=SEED))
    modules = broken_and_fixed(find("28"))
    _draw_range(out / "28_range.svg", modules["fixed"], batch)
    _draw_scales(out / "28_scales.svg", modules["fixed"], batch)
    figure, axes = new_figure("One batch over and over, in float16", "step", "loss, m² (log scale)")
    for name, module in modules.items():
        axes.plot(module.train(Policy.from_base(seed=SEED), [batch] * STEPS), color=COLOURS[name], label=name)
    axes.set(yscale="log")
    axes.legend()
    save(figure, out / "28_loss.svg")


def _draw_range(path: Path, module: Any, batch: dict[str, Tensor]) -> None:
    exponents = _gradients(module, batch, scale=1.0, half=False).abs().clamp(min=2.0**-60).log2()
    figure, axes = new_figure("Where the gradients are, and where float16 is", "size, as a power of two", "parameters")
    axes.axvspan(-24, -14, color=REFERENCE, alpha=0.25, linewidth=0)
    axes.axvspan(-14, 16, color=REFERENCE, alpha=0.5, linewidth=0)
    bins = [float(edge) for edge in range(-52, 18)]
    for shift, colour, name in ((0, BROKEN, "as they are"), (24, FIXED, "loss times 2²⁴")):
        axes.hist((exponents + shift).tolist(), bins=bins, color=colour, alpha=0.85, label=name)
    top = axes.get_ylim()[1]
    axes.annotate("fewer digits", (-19, top), ha="center", va="top", size=9)
    axes.annotate("float16, all digits", (1, top), ha="center", va="top", size=9)
    axes.annotate("zero", (-38, top), ha="center", va="top", size=9)
    axes.set(xlim=(-52, 17), ylim=(0, top * 1.02))
    axes.legend(loc="center right")
    save(figure, path)


def _draw_scales(path: Path, module: Any, batch: dict[str, Tensor]) -> None:
    powers = list(range(0, 41, 4))
    wanted = _gradients(module, batch, scale=1.0, half=False)
    figure, axes = new_figure("What float16 keeps of the gradient, at each loss scale", "loss scale", "share")
    shares: dict[str, list[float]] = {"zero": [], "few digits": []}
    distance = []
    for power in powers:
        size = _gradients(module, batch, scale=2.0**power, half=True)
        shares["zero"].append(float((size == 0).double().mean()))
        shares["few digits"].append(float(((size != 0) & (size.abs() < SMALLEST_NORMAL)).double().mean()))
        distance.append(float((size / 2.0**power - wanted).norm() / wanted.norm()))
    for (name, values), style in zip(shares.items(), ("-", "--"), strict=True):
        axes.plot(powers, values, color=BROKEN, linestyle=style, label=name)
    axes.plot(powers, distance, color=FIXED, label="distance from float32's")
    axes.set(xticks=powers, xticklabels=[f"2$^{{{power}}}$" for power in powers], ylim=(0, 1.02))
    axes.legend(loc="center right")
    save(figure, path)


def _gradients(module: Any, batch: dict[str, Tensor], scale: float, half: bool) -> Tensor:
    policy = Policy.from_base(seed=SEED)
    if half:
        policy, batch = policy.half(), module.in_half_precision(batch)
    loss = module.weighted_loss(policy, batch, module.frame_weights(torch.ones(BATCH_SIZE)))
    (loss * scale).backward()
    return torch.cat([parameter.grad.double().flatten() for parameter in policy.parameters()])
