"""Passes with the same random numbers, and nothing that is left of the seeding."""

from __future__ import annotations

import random
import traceback

import numpy as np
import pytest
import torch

from debugkit.randomness import same_randomness


def _drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_seeded_passes_draw_what_torchs_own_seeding_gives_and_everything_is_restored() -> None:
    torch.manual_seed(7)
    expected = float(torch.rand(()))
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    without = [_drawn() for _ in range(2)]

    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    first = _drawn()
    with same_randomness(7):
        inside = _drawn()
    with same_randomness(7):
        assert _drawn() == inside
    assert inside[2] == expected
    assert [first, _drawn()] == without


def test_seeding_formats_no_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.manual_seed` does, once for each kind of device that is not in use yet."""
    formatted: list[object] = []
    monkeypatch.setattr(traceback, "format_stack", lambda *_: formatted.append(None) or [])
    with same_randomness(3):
        pass
    assert not formatted
