"""Demonstrated actions with padding, for checks of what a policy learns from them, such as the range of each joint."""

from __future__ import annotations

from torch import Tensor

from labs.grading import Rng

FAR_OFF = 5.0
"""What is added to padded actions: a range that includes one is wrong by far."""


def demonstrations(rng: Rng, action: Tensor) -> dict[str, Tensor]:
    """The actions (N, H, A) as `demonstrated`, a fifth of the steps padded and far off, and `action_is_pad` (N, H)."""
    is_pad = rng.boolean(*action.shape[:2], probability=0.2)
    is_pad[0, 0] = False
    action[is_pad] += FAR_OFF
    return {"demonstrated": action, "action_is_pad": is_pad}


def extremes(demos: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The smallest and the largest action of the steps that are not padding, (A,) each."""
    steps = demos["demonstrated"][~demos["action_is_pad"]]
    return steps.amin(dim=0), steps.amax(dim=0)
