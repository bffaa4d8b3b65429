"""Whether a model's weights are as they were initialised, as far as the weights tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """Signs that weights were loaded or trained."""

    sign: str | None
    """What says so, in a few words; None if nothing does."""
