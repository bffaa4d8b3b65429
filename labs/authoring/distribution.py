"""The wheel of the labs does not contain debugkit: it requires `debugkit-torch`, built by `debugkit/pyproject.toml`.

Hatchling loads this file as the build hook of the repository's pyproject.toml. An editable install is for people who
work on both: it installs no second distribution, so it keeps debugkit's dependencies, program and pytest plugin.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VERSION = re.compile(r'__version__ = "(.+)"')


class LabsWithoutDebugkit(BuildHookInterface):  # type: ignore[type-arg]
    """For a wheel: drop debugkit's program and plugin, and require its distribution."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        found = VERSION.search((Path(self.root) / "debugkit" / "version.py").read_text(encoding="utf-8"))
        assert found is not None, "debugkit/version.py holds no version"
        build_data["dependencies"].append(f"debugkit-torch>={found[1]},<{_next_minor(found[1])}")
        self.metadata.core.scripts.pop("debugkit")
        self.metadata.core.entry_points.pop("pytest11")


def _next_minor(version: str) -> str:
    """The first version that may break the labs: before 1.0 a minor version, later a major one."""
    major, minor, *_ = version.split(".")
    return f"0.{int(minor) + 1}" if major == "0" else f"{int(major) + 1}.0"
