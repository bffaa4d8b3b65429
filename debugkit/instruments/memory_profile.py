"""memory_profile: how many bytes a training step needs, by what they are for, before there is a GPU to fill."""

from debugkit.measurements.memory_profile import MemoryProfile, ModuleBytes, Peak
from debugkit.measurements.memory_profile.measure import memory_profile

__all__ = ["MemoryProfile", "ModuleBytes", "Peak", "memory_profile"]
