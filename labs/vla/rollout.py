"""The closed loop: the policy acts, the environment responds, and the result is whether the block is reached.

All episodes run in one batch, so fifty of them cost a few tenths of a CPU second. A finished episode stays in the batch
and its actions are ignored: row i is the same episode from the first step to the last, whatever buffers the controller
keeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labs.vla.dataset import Batch, observation_batch
from labs.vla.policy import Policy
from labs.vla.randomness import private_randomness
from labs.vla.tabletop import Tabletop, stack_observations
from labs.vla.training import to_device

Predict = Callable[[Batch], Tensor]
"""Observations to action chunks, (B, H, 3) in environment units."""
OnFrame = Callable[[int, Tabletop], None]
"""Called with the episode's row and its table, after the reset and after every step until the episode ends."""


@dataclass(frozen=True)
class Rollout:
    """The results of N episodes."""

    success: NDArray[np.bool_]
    """(N,): closed at the named block."""
    wrong_block: NDArray[np.bool_]
    """(N,): closed at another block."""
    distance: NDArray[np.float64]
    """(N,): metres from the gripper to the named block at the end."""
    steps: NDArray[np.int64]
    """(N,): the number of actions in the episode."""

    @property
    def success_rate(self) -> float:
        """The fraction of episodes that closed at the named block."""
        return float(self.success.mean())

    @property
    def wrong_block_rate(self) -> float:
        """The fraction of episodes that closed at another block: the policy ignores the instruction."""
        return float(self.wrong_block.mean())

    @property
    def never_closed_rate(self) -> float:
        """The fraction of episodes that ran out of time."""
        return float((~self.success & ~self.wrong_block).mean())

    @property
    def final_distance(self) -> float:
        """Median distance to the named block at the end, metres."""
        return float(np.median(self.distance))


def rollout(
    policy: Policy,
    *,
    episodes: int = 50,
    first_seed: int = 10_000,
    execute: int = 2,
    predict: Predict | None = None,
    on_frame: OnFrame | None = None,
) -> Rollout:
    """Run `episodes` of the tabletop with seeds from `first_seed` on, executing `execute` actions of each chunk.

    `predict` replaces `policy.predict`, to test another way of using the same weights. Runs in evaluation mode and
    restores the mode of every module afterwards, also where a frozen part was in another mode than the policy. Heads
    that sample are seeded with `first_seed`, and the caller's random state does not change.
    """
    queue = ActionQueue(predict or policy.predict, execute)
    with _evaluation_mode(policy), private_randomness(first_seed), torch.no_grad():
        return _run([first_seed + i for i in range(episodes)], queue, policy.device, on_frame)


class ActionQueue:
    """Executes the first `execute` actions of a chunk, one per call, then requests the next chunk.

    Holds one queue for the whole batch: entry t is (B, 3), so the queue runs along time and the batch axis is never
    sliced.
    """

    def __init__(self, predict: Predict, execute: int) -> None:
        if execute < 1:
            raise ValueError(f"A controller must execute at least one action of each chunk, not {execute}.")
        self.predict = predict
        self.execute = execute
        self._actions: deque[Tensor] = deque()

    def reset(self) -> None:
        """Discard the rest of the chunk: it belongs to the episode that ended."""
        self._actions.clear()

    def __call__(self, batch: Batch) -> Tensor:
        """The next action of every episode, (B, 3)."""
        if not self._actions:
            chunk = self.predict(batch)  # (B, H, 3)
            if chunk.shape[1] < self.execute:
                raise ValueError(
                    f"The controller was to execute {self.execute} actions of each chunk, but a chunk of this policy "
                    f"has {chunk.shape[1]} actions. Lower `execute`, or train with a longer horizon."
                )
            self._actions.extend(chunk.transpose(0, 1)[: self.execute])  # H entries of (B, 3)
        return self._actions.popleft()


def _run(seeds: list[int], queue: ActionQueue, device: torch.device, on_frame: OnFrame | None) -> Rollout:
    tables = [Tabletop(render_mode="rgb_array") for _ in seeds]
    observations = [table.reset(seed=seed)[0] for table, seed in zip(tables, seeds, strict=True)]
    infos = [{"success": False, "wrong_block": False, "distance": np.inf} for _ in seeds]
    steps = np.zeros(len(seeds), np.int64)
    running = set(range(len(seeds)))
    queue.reset()
    on_frame = on_frame or _look_away
    for row in sorted(running):
        on_frame(row, tables[row])
    while running:
        batch = to_device(observation_batch(**stack_observations(observations)), device)
        actions = queue(batch).float().cpu().numpy()  # (B, 3)
        for row in sorted(running):
            observations[row], _, terminated, truncated, infos[row] = tables[row].step(actions[row])
            steps[row] += 1
            on_frame(row, tables[row])
            if terminated or truncated:
                running.discard(row)
    return Rollout(
        success=np.array([info["success"] for info in infos]),
        wrong_block=np.array([info["wrong_block"] for info in infos]),
        distance=np.array([info["distance"] for info in infos]),
        steps=steps,
    )


@contextmanager
def _evaluation_mode(policy: Policy) -> Iterator[None]:
    modes = [(module, module.training) for module in policy.modules()]
    policy.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _look_away(_row: int, _table: Tabletop) -> None:
    """Do nothing: the default for `on_frame`."""
