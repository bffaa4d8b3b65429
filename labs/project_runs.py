"""What checks of a configured project compare: settings by dotted name, and the numbers that a run printed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name, as a config has them."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        group, _, own = name.rpartition(".")
        (found.setdefault(group, {}) if group else found)[own] = value
    return found


def flat(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """A config's settings, by dotted name."""
    found: dict[str, Any] = {}
    for group, values in (config or {}).items():
        own = values if isinstance(values, Mapping) else {"": values}
        found |= {f"{group}.{name}".rstrip("."): value for name, value in own.items()}
    return found


def numbers(lines: Sequence[str]) -> list[list[float]]:
    """The numbers of each printed line."""
    return [[float(one) for one in re.findall(r"\d+(?:\.\d+)?", line)] for line in lines]
