"""What a training step needs, and what there is."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.observations.plain import PlainData
from debugkit.observations.storage import MemoryProfile


@dataclass(frozen=True)
class MemoryDemand(PlainData):
    """A predicted peak beside a budget in bytes; `source` says where the budget is from: `declared` or a device."""

    profile: MemoryProfile
    budget: int
    source: str

    @property
    def lasting(self) -> int:
        """Bytes that no smaller batch saves: parameters, buffers, gradients and the optimizer's state."""
        profile = self.profile
        return profile.parameters + profile.buffers + profile.gradients + profile.optimizer_state
