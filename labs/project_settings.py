"""What checks of projects ask about the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labs.grading import Submission, expect


def expect_settings(submission: Submission, wanted: Mapping[str, Any]) -> None:
    """The probe's `settings` must be the wanted ones, with no other beside them."""
    found, expected = _flat(submission.observe("settings")), _flat(dict(wanted))
    expect(sorted(found), "the names of the settings").equals(sorted(expected))
    for name, value in expected.items():
        expect(found[name], f"the setting {name}").equals(value)


def _flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """A configuration's values by dotted name."""
    if not isinstance(config, dict):
        return {prefix: config}
    return {
        name: value
        for key, part in config.items()
        for name, value in _flat(part, f"{prefix}.{key}" if prefix else str(key)).items()
    }
