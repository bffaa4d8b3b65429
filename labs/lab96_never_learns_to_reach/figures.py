"""Figures of lesson 96, from real runs: `lab dev figures 96`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback

from labs.authoring.plots import COLOURS, broken_and_fixed, new_figure, save
from labs.co_training import batch_of, losses_of
from labs.grading.catalog import find
from labs.vla.film import episode_gif

SEED, STEPS, BATCH_SIZE, EVERY = 96, 150, 64, 10
EPISODE = 10_022
LARGEST_GIF = 400_000


def figures(out: Path) -> None:
    """Both parts of the held-out loss during training, measured on batches made by hand; and an episode as a film."""
    torch.set_num_threads(1)
    chunks, chunk_axes = new_figure("Held-out loss of the chunks", "step", "loss")
    words, word_axes = new_figure("Held-out loss of the words", "step", "loss")
    policies = {}
    for name, module in broken_and_fixed(find("96")).items():
        parts = _Parts(module)
        policies[name] = parts.train()
        for axes, part in ((chunk_axes, "chunks"), (word_axes, "words")):
            axes.plot(parts.steps, parts.losses[part], color=COLOURS[name], label=name)
    for figure, axes, file in ((chunks, chunk_axes, "96_chunks.svg"), (words, word_axes, "96_words.svg")):
        axes.set_ylim(bottom=0)
        axes.legend()
        save(figure, out / file)
    film = episode_gif(out / "96_rollout.gif", policies, seed=EPISODE, width=300)
    if film.stat().st_size > LARGEST_GIF:
        raise ValueError(f"{film} has {film.stat().st_size:,} bytes; a page should not load more than {LARGEST_GIF:,}.")


class _Parts(TrainerCallback):
    """Trains a module's model, and measures both parts of the held-out loss every few steps."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.model = module, module.build_model(SEED)
        held_out = module.mixture(384, SEED + 1)
        self.batch = batch_of([dict(held_out[index]) for index in range(len(held_out))])
        self.steps: list[int] = []
        self.losses: dict[str, list[float]] = {"chunks": [], "words": []}

    def train(self) -> Any:
        """The policy after the training."""
        train, held_out = self.module.mixture(4800, SEED), self.module.mixture(12, SEED + 1)
        with tempfile.TemporaryDirectory() as folder:
            options = {"steps": STEPS, "folder": Path(folder), "seed": SEED, "batch_size": BATCH_SIZE}
            trainer = self.module.build_trainer(self.model, train, held_out, **options)
            trainer.remove_callback(PrinterCallback)
            trainer.add_callback(self)
            trainer.train()
        return self.model.policy

    def on_step_begin(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        if state.global_step % EVERY == 0:
            self._measure(state.global_step)

    def on_train_end(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        self._measure(state.global_step)

    @torch.no_grad()
    def _measure(self, step: int) -> None:
        self.steps.append(step)
        for part, loss in losses_of(self.model.policy, self.batch).items():
            self.losses[part].append(float(loss))
