"""Run an episode, reset, and start another one: its first action must be the same as without the first episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from debugkit.finding import NotExamined
from debugkit.frames import one_line
from debugkit.interventions.bit_digest import digest
from debugkit.interventions.inference_path import act, inference_of
from debugkit.interventions.passes import distance, minimal_floor
from debugkit.rules.dk406_policy_remembers_last_episode import EpisodeMemory
from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, map_tensors

_LENGTHS = (1, 3)
"""Episode lengths: one step leaves a queue of actions full, three steps fill a history and an ensemble."""


def play_two_episodes(setup: TrainingSetup) -> EpisodeMemory:
    """Run seven inferences of a single sample. Memory outside the model is left as the declared reset leaves it."""
    inference_of(setup)
    reset = _reset_of(setup)
    ours, others = _two_observations(setup)
    reset()
    alone = act(setup, ours)
    worst = (0.0, 0, "")
    for steps in _LENGTHS:
        reset()
        for _ in range(steps):
            act(setup, others)
        reset()
        after = act(setup, ours)
        for path, tensor in alone.items():
            moved = distance(tensor, after[path]) if path in after else float("inf")
            worst = max(worst, (moved, steps, path))
    limit = minimal_floor(setup.model)
    kept = _kept(setup, reset, others, worst[1]) if worst[0] > limit else ()
    reset()
    return EpisodeMemory(_has_reset(setup), worst[0], worst[1], limit, worst[2], kept)


def _kept(setup: TrainingSetup, reset: Callable[[], None], others: Any, steps: int) -> tuple[tuple[str, str], ...]:
    """The attributes, with the path of their module, that `reset()` leaves as an episode has made them."""
    reset()
    before = _attributes(setup)
    for _ in range(steps):
        act(setup, others)
    reset()
    return tuple(place for place, bits in _attributes(setup).items() if before.get(place) != bits)


def _attributes(setup: TrainingSetup) -> dict[tuple[str, str], bytes]:
    return {
        (path, name): digest(list(value) if type(value).__name__ == "deque" else value)
        for module, path in setup.module_paths.items()
        for name, value in (*vars(module).items(), *module.named_buffers(recurse=False))
        if not name.startswith("_")
    }


def _has_reset(setup: TrainingSetup) -> bool:
    return setup.declare.reset is not None or callable(getattr(setup.model, "reset", None))


def _reset_of(setup: TrainingSetup) -> Callable[[], None]:
    declared, own = setup.declare.reset, getattr(setup.model, "reset", None)

    def reset() -> None:
        try:
            if declared is not None:
                declared(setup.model)
            elif callable(own):
                own()
        except Exception as error:
            raise NotExamined(f"reset raised {one_line(error)}.") from error

    return reset


def _two_observations(setup: TrainingSetup) -> tuple[Any, Any]:
    """The first sample, and a noisy copy of the second one, or of the first if the batch has only one."""
    size = batch_size(setup.batch)
    if size is None:
        raise NotExamined("The batch has no tensor with a row per sample.")

    def row(index: int) -> Any:
        return map_tensors(
            setup.fresh_batch(),
            lambda _, tensor: tensor[index : index + 1] if tensor.shape[:1] == (size,) else tensor,
        )

    def noisy(_: str, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0)).to(tensor)
        return tensor + noise * tensor.float().std(correction=0).nan_to_num(0.0).clamp_min(0.1).to(tensor)

    return row(0), map_tensors(row(min(1, size - 1)), noisy)
