"""The error for an integration whose framework is not installed."""

from __future__ import annotations


def missing(framework: str, distribution: str, needed_by: str) -> ImportError:
    """The error to raise. It names the package and the command that installs it."""
    return ImportError(
        f"debugkit.integrations.{needed_by} works inside {framework}, which is not installed: "
        f"pip install {distribution}",
        name=distribution,
    )
