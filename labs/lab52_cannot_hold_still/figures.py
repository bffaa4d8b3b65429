"""Figures of lesson 52, from real runs: `lab dev figures 52`."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save, smooth
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations
from labs.vla.film import episode_gif
from labs.vla.policy import Policy
from labs.vla.randomness import private_randomness

SEED, STEPS, BATCH_SIZE, EVERY = 52, 160, 32, 20
FAILS_AT = 60
"""The step whose validation fails."""
EPISODE = 10_005
PICTURE_WIDTH = 232


def figures(out: Path) -> None:
    """Both policies on the same table, as an animation; and the training loss of both around the failing validation."""
    torch.set_num_threads(1)
    figure, axes = new_figure("Training loss, the same seed", "step", "loss (running mean of 9)")
    acting: dict[str, Policy] = {}
    for name, module in broken_and_fixed(find("52")).items():
        policy = module.build_policy(SEED)
        with private_randomness(SEED):
            log = _train(module, policy)
        axes.plot(smooth(log.losses), color=COLOURS[name], label=name)
        acting[name] = _through_act(module, policy)
    axes.axvline(FAILS_AT, color=REFERENCE, linewidth=1)
    axes.annotate("a validation fails", (FAILS_AT + 2, 0.93), xycoords=("data", "axes fraction"), size=9, c="#5c677d")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower left")
    save(figure, out / "52_loss.svg")
    episode_gif(out / "52_rollout.gif", dict(reversed(acting.items())), seed=EPISODE, width=PICTURE_WIDTH)


def _train(module: Any, policy: Any) -> Any:
    frames = demonstrations(STEPS * BATCH_SIZE, SEED)
    held_out = next(batches(demonstrations(128, SEED + 1), 128, steps=1, seed=0))
    stream = batches(frames, BATCH_SIZE, STEPS, seed=SEED)
    return module.train(policy, module.build_optimizer(policy), stream, _FailsOnce(held_out), EVERY)


def _through_act(module: Any, policy: Policy) -> Policy:
    """A policy for the animation whose `predict` calls `act` on the policy in the mode in which training left it."""
    shown = copy.deepcopy(policy)
    shown.predict = functools.partial(module.act, policy)  # type: ignore[method-assign]
    return shown


class _FailsOnce:
    """One validation batch that cannot be decoded at the third validation."""

    def __init__(self, batch: dict[str, Tensor]) -> None:
        self.batch, self.times = batch, 0

    def __iter__(self) -> Any:
        self.times += 1
        if self.times * EVERY == FAILS_AT:
            raise OSError("frame 217 cannot be decoded")
        yield self.batch
