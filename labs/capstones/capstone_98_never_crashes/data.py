"""Demonstrations of the stations, and the stream of batches that a run trains on.

An action of the line has four numbers: dx, dy, the wrist's angle and the gripper.

Notable choices
- A batch is of one station, because actions are normalised with the station's own statistics.
- Stations alternate in proportion to their batches, so no part of an epoch belongs to one station alone.
- A station's frames, and their order, depend on the station's own seed: another station does not change them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from labs.vla.dataset import Batch, Frames, collate, demonstrations
from labs.vla.tabletop import MAX_STEP
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD

WRIST = 2
"""The action dimension of the wrist's angle, in radians."""
WRIST_RANGE = 0.6


@dataclass(frozen=True)
class Station:
    """One station, as the configuration describes it."""

    frames: int
    """Recorded frames."""
    seed: int
    units_per_metre: float
    """What the controller takes for a movement of one metre."""
    light: float
    """Brightness of the picture, relative to the north station's."""
    wrist_locked_at: float | None
    """The angle at which the wrist is locked, in radians; None if it turns into the direction of the movement."""

    def record(self) -> Frames:
        """The station's demonstrations. Images are as rendered; `see` makes them the camera's."""
        frames = demonstrations(self.frames, seed=self.seed)
        return replace(frames, action=self._commands(frames.action))

    def see(self, pixel_values: Tensor) -> Tensor:
        """What this station's camera shows, (B, 3, 64, 64). Training and the robot both convert here."""
        pixels = (pixel_values * PIXEL_STD + PIXEL_MEAN) * self.light
        return (pixels - PIXEL_MEAN) / PIXEL_STD

    def movements(self, action: Tensor) -> Tensor:
        """Commands (..., 4) as the tabletop takes them, (..., 3): metres, and no wrist."""
        scale = action.new_tensor([1 / self.units_per_metre, 1 / self.units_per_metre, 1.0])
        return action[..., [0, 1, 3]] * scale

    def _commands(self, action: NDArray[np.float32]) -> NDArray[np.float32]:
        """The expert's movements (N, H, 3) as this station's commands (N, H, 4)."""
        move, grip = action[..., :2] * np.float32(self.units_per_metre), action[..., 2:]
        if self.wrist_locked_at is None:
            wrist = WRIST_RANGE * action[..., :1] / MAX_STEP
        else:
            wrist = np.full_like(grip, self.wrist_locked_at)
        return np.concatenate([move, wrist, grip], axis=-1).astype(np.float32)


class Mixture:
    """The batches of all stations, one station a batch."""

    def __init__(self, stations: Mapping[str, Station], frames: Mapping[str, Frames], batch_size: int) -> None:
        self.stations, self.frames, self.batch_size = stations, frames, batch_size
        self.counts = {name: len(own) // batch_size for name, own in frames.items()}
        """Batches of each station in one epoch; frames that do not fill a batch are left for another epoch."""

    def __len__(self) -> int:
        """Batches of one epoch."""
        return min(self.counts.values())

    def stream(self, epochs: int) -> Iterator[tuple[str, Batch]]:
        """The station's name and the batch, for every batch of a run."""
        orders = {name: np.random.default_rng(self.stations[name].seed) for name in self.frames}
        for _ in range(epochs):
            rows = {name: rng.permutation(len(self.frames[name])) for name, rng in orders.items()}
            for name, number in self._turns():
                chosen = rows[name][number * self.batch_size : (number + 1) * self.batch_size]
                batch = collate(self.frames[name], chosen)
                yield name, {**batch, "pixel_values": self.stations[name].see(batch["pixel_values"])}

    def _turns(self) -> list[tuple[str, int]]:
        """The order of an epoch: each station's batches, evenly spread over it."""
        places = [
            ((number + 0.5) / count, name, number) for name, count in self.counts.items() for number in range(count)
        ]
        return [(name, number) for _, name, number in sorted(places)]


def stations_of(config: Mapping[str, Any]) -> dict[str, Station]:
    """The stations of a configuration, by name."""
    return {name: Station(**given) for name, given in config["stations"].items()}
