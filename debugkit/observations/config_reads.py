"""Which keys of a configuration a program has read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConfigReads:
    """The leaves of a configuration and what was asked of it, by dotted key."""

    leaves: tuple[str, ...]
    """Every leaf, in the order of the config; a list is one leaf."""
    read: frozenset[str]
    """The leaves that were read by name, by iterating, or through an interpolation."""
    asked_in_vain: tuple[str, ...]
    """Keys that were asked for and are not there (`cfg.get("x", …)`), in order."""
    converted: bool
    """Whether the whole config was turned into plain data, whose reads cannot be seen."""
