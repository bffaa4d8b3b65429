"""Figures of lesson 63, from real runs: `lab dev figures 63`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch

from debugkit.measurements.memory_profile.storage_counter import StorageCounter
from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations

MIB = 2**20
BUDGET = 12


def figures(out: Path) -> None:
    """The bytes alive before each attempt at a step of 64 frames in 12 MiB."""
    torch.set_num_threads(1)
    figure, axes = new_figure("Alive before each attempt, in a machine of 12 MiB", "frames in a micro-batch", "MiB")
    sizes = [64, 32, 16, 8, 4, 2, 1]
    for offset, (name, module) in zip((-0.2, 0.2), broken_and_fixed(find("63")).items(), strict=True):
        alive = _alive_before_each_size(module)
        places = [sizes.index(size) + offset for size in alive]
        axes.bar(places, [value / MIB for value in alive.values()], width=0.4, color=COLOURS[name], label=name)
    axes.axhline(BUDGET, color=REFERENCE, linestyle="--", linewidth=1)
    axes.set(xticks=range(len(sizes)), xticklabels=sizes, ylim=(0, 15))
    axes.annotate("fixed: 16 frames run, and nothing else", (3.5, 13.3), size=9, color=COLOURS["fixed"])
    axes.legend(loc="upper left", ncols=2)
    save(figure, out / "63_alive.svg")


def _alive_before_each_size(module: Any) -> dict[int, int]:
    policy = module.build_policy(0)
    batch = next(batches(demonstrations(64, seed=63), 64, steps=1, seed=63))
    memory, alive = _Memory(), {}
    memory.hold([*policy.parameters(), *policy.buffers(), *batch.values()], "parameters")

    def keep(_module: Any, _args: Any, given: dict[str, Any]) -> None:
        alive.setdefault(len(given["state"]), memory.live)

    policy.register_forward_pre_hook(keep, with_kwargs=True)
    with memory, contextlib.suppress(torch.OutOfMemoryError):
        module.training_step(policy, module.build_optimizer(policy), batch)
    return alive


class _Memory(StorageCounter):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = super().__torch_dispatch__(func, types, args, kwargs)
        if self.live > BUDGET * MIB:
            del output  # a failed allocation leaves nothing behind
            raise torch.OutOfMemoryError("full")
        return output
