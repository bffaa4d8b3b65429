"""Figures of lesson 18, from real runs: `lab dev figures 18`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import silu

from labs.authoring.plots import BROKEN, COLOURS, FIXED, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations

SEED = 18


def figures(out: Path) -> None:
    """The slope of silu in both backwards, over the gates of a real batch; and a finite difference's error."""
    torch.set_num_threads(1)
    modules = broken_and_fixed(find("18"))
    save(_slopes(modules), out / "18_slopes.svg")
    save(_errors(modules["fixed"]), out / "18_eps.svg")


def _slopes(modules: dict[str, Any]) -> Any:
    figure, axes = new_figure("d silu / d gate, as backward gives it", "gate", "slope")
    gate = torch.linspace(-4, 4, 401)
    for name, module in modules.items():
        axes.plot(gate, _slope(module, gate), color=COLOURS[name], label=name)
    axes.axhline(0, color=REFERENCE, linewidth=0.8)
    policy = modules["fixed"].build_policy(SEED)
    gates: list[torch.Tensor] = []
    for layer in policy.language_model.layers:
        layer.mlp.gate_proj.register_forward_hook(lambda _, __, output: gates.append(output.detach().flatten()))
    policy.predict(next(batches(demonstrations(64, seed=SEED), 64, steps=1, seed=SEED)))
    counts, edges = torch.histogram(torch.cat(gates), bins=64, range=(-4.0, 4.0))
    height = 0.5 * counts / counts.max()
    axes.bar(edges[:-1], height, width=0.125, align="edge", color=REFERENCE, alpha=0.35, label="gates of this policy")
    axes.legend(loc="upper left")
    return figure


def _errors(module: Any) -> Any:
    title = "A finite difference against the derivative: largest error over gates in [-4, 4]"
    figure, axes = new_figure(title, "eps", "error (log scale)")
    gate = torch.linspace(-4, 4, 401, dtype=torch.float64)
    slope, steps = _slope(module, gate), torch.logspace(-11, -1, 81, dtype=torch.float64).tolist()
    for dtype, colour, name in ((torch.float32, BROKEN, "float32"), (torch.float64, FIXED, "float64")):
        x = gate.to(dtype)
        errors = [float(((silu(x + e) - silu(x - e)).double() / (2 * e) - slope).abs().max()) for e in steps]
        axes.plot(steps, errors, color=colour, label=name)
    axes.axhline(1e-5, color=REFERENCE, linestyle="--", linewidth=1)
    axes.annotate("gradcheck's atol", (1.2e-8, 1.6e-5), size=9, color="#5c677d")
    axes.set(xscale="log", yscale="log", ylim=(1e-11, 10))
    axes.legend()
    return figure


def _slope(module: Any, gate: torch.Tensor) -> torch.Tensor:
    """The gradient of the gate where up and the incoming gradient are 1."""
    gate = gate.clone().requires_grad_()
    (found,) = torch.autograd.grad(module.gated_activation(gate, torch.ones_like(gate)).sum(), gate)
    return found
