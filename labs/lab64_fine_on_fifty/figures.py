"""The figure of lesson 64, from real runs: `lab dev figures 64`."""

from __future__ import annotations

import weakref
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

from torch import Tensor

from labs.authoring.plots import COLOURS, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.recordings import Recording, record

SEED, EPISODES, ALLOWED = 64, 200, 128


def figures(out: Path) -> None:
    """The number of decoded images that are alive after each read, for both."""
    figure, axes = new_figure("One pass over 200 episodes", "frames read", "decoded images in memory")
    for name, module in broken_and_fixed(find("64")).items():
        axes.plot(_alive(module), color=COLOURS[name], label=name)
    axes.axhline(ALLOWED, color=REFERENCE, linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.legend()
    save(figure, out / "64_alive.svg")


def _alive(module: ModuleType) -> list[int]:
    decode, alive, counts = Recording.decode, [0], []

    def counted(recording: Recording, segment: int) -> Tensor:
        images = decode(recording, segment)
        alive[0] += len(images)
        weakref.finalize(images.untyped_storage(), freed, len(images))
        return images

    def freed(images: int) -> None:
        alive[0] -= images

    with patch.object(Recording, "decode", counted):
        dataset = module.RecordedFrames(record(EPISODES, SEED))
        for index in module.FewEpisodesAtATime(dataset, SEED):
            dataset[index]
            counts.append(alive[0])
    return counts
