"""Demonstrations, and the batches of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from labs.vla.dataset import Batch, Frames, collate, demonstrations

Settings: TypeAlias = Mapping[str, Any]
"""The contents of `config.yaml`."""

HELD_OUT, HELD_OUT_SEED = 256, 900_000


def draw(settings: Settings) -> Frames:
    """The demonstrations of a run."""
    return demonstrations(settings["frames"], seed=settings["data_seed"], horizon=settings["horizon"])


def held_out(settings: Settings) -> Batch:
    """Demonstrations that no run trains on, as one batch."""
    return collate(demonstrations(HELD_OUT, HELD_OUT_SEED, settings["horizon"]), np.arange(HELD_OUT))
