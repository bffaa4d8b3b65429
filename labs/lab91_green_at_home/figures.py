"""Figures of lesson 91, from real runs: `lab dev figures 91`."""

from __future__ import annotations

import logging
import traceback
import warnings
from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader

from labs.authoring.plots import BROKEN, FIXED, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.dataset import batches, demonstrations


def figures(out: Path) -> None:
    """The owners of the frames between `trainer.fit` and the line that raised, in the order of the traceback."""
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    frames = _frames(broken_and_fixed(find("91"))["as shipped"])
    figure, axes = new_figure(
        "The traceback of one failed step, frame by frame", "frame, as printed from top to bottom", ""
    )
    owners = ("your script", "Lightning", "PyTorch", "policy.py")
    colours = dict(zip(owners, (FIXED, REFERENCE, REFERENCE, BROKEN), strict=True))
    for position, (owner, function) in enumerate(frames, 1):
        row = owners.index(owner)
        axes.bar(position, 0.7, bottom=row - 0.35, width=0.8, color=colours[owner])
        if owner == "your script":
            axes.annotate("trainer.fit(…)", (position + 0.7, row), va="center")
        if owner == "policy.py" and position == len(frames):
            axes.annotate(f"training_step() and {function}()", (position - 2, row), ha="right", va="center")
    axes.set(yticks=range(len(owners)), yticklabels=owners, ylim=(-0.7, len(owners) - 0.3), xlim=(0, len(frames) + 1))
    save(figure, out / "91_frames.svg")


def _frames(module: object) -> list[tuple[str, str]]:
    """Owner and function of each frame of the traceback."""
    batch = next(batches(demonstrations(16, seed=91), 16, steps=1, seed=91))
    trainer = lightning.Trainer(
        accelerator="cpu",
        precision="64-true",
        fast_dev_run=True,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.fit(module.build_module(91), DataLoader([batch], batch_size=None))  # type: ignore[attr-defined]
    except RuntimeError as error:
        return [(_owner(frame.filename), frame.name) for frame in traceback.extract_tb(error.__traceback__)]
    raise AssertionError("The broken module ran in double precision.")


def _owner(filename: str) -> str:
    if "/site-packages/lightning" in filename:
        return "Lightning"
    if "/site-packages/torch" in filename:
        return "PyTorch"
    return "policy.py" if filename.endswith("policy.py") else "your script"
