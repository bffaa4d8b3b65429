"""Act in one episode, reset, act in another: its first action must be what it is without the first episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from debugkit.experiments import experiment
from debugkit.experiments.passes import distance, minimal_floor
from debugkit.finding import NotExamined
from debugkit.inference_path import act, inference_of
from debugkit.observations.episode_memory import EpisodeMemory
from debugkit.step import one_line
from debugkit.structure import batch_size, map_tensors
from debugkit.subject import Subject

_LENGTHS = (1, 3)
"""One step leaves a queue of actions full; three leave a history and an ensemble with something in them."""


@experiment(EpisodeMemory, cost=1, requires=("batch",))
def play_two_episodes(subject: Subject) -> EpisodeMemory:
    """Seven inferences of a single sample. A policy outside the model is left as its reset leaves it."""
    inference_of(subject)
    reset = _reset_of(subject)
    ours, others = _two_observations(subject)
    reset()
    alone = act(subject, ours)
    worst = (0.0, 0, "")
    for steps in _LENGTHS:
        reset()
        for _ in range(steps):
            act(subject, others)
        reset()
        after = act(subject, ours)
        for path, tensor in alone.items():
            moved = distance(tensor, after[path]) if path in after else float("inf")
            worst = max(worst, (moved, steps, path))
    reset()
    return EpisodeMemory(_has_reset(subject), worst[0], worst[1], minimal_floor(subject.model), worst[2])


def _has_reset(subject: Subject) -> bool:
    return subject.declare.reset is not None or callable(getattr(subject.model, "reset", None))


def _reset_of(subject: Subject) -> Callable[[], None]:
    declared, own = subject.declare.reset, getattr(subject.model, "reset", None)

    def reset() -> None:
        try:
            if declared is not None:
                declared(subject.model)
            elif callable(own):
                own()
        except Exception as error:
            raise NotExamined(f"reset raised {one_line(error)}.") from error

    return reset


def _two_observations(subject: Subject) -> tuple[Any, Any]:
    """One sample, and another one like it; a noisy copy where the batch has no other."""
    size = batch_size(subject.batch)
    if size is None:
        raise NotExamined("The batch has no tensor with a row per sample.")

    def row(index: int) -> Any:
        return map_tensors(
            subject.fresh_batch(),
            lambda _, tensor: tensor[index : index + 1] if tensor.shape[:1] == (size,) else tensor,
        )

    def noisy(_: str, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0)).to(tensor)
        return tensor + noise * tensor.float().std(correction=0).nan_to_num(0.0).clamp_min(0.1).to(tensor)

    return row(0), map_tensors(row(min(1, size - 1)), noisy)
