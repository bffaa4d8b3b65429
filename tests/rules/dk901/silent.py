"""Healthy compositions, in which values are overridden on purpose."""

from pathlib import Path
from typing import Any

CONF = Path(__file__).parent / "conf"


def group_that_refines_its_base() -> dict[str, Any]:
    """`train=large` lists its base first and `_self_` last."""
    return _composed("self_last", "train=large")


def experiment_over_the_main_config() -> dict[str, Any]:
    """The experiment was chosen on the command line, so it may override everything, even the group that it chose."""
    return _composed("self_last", "experiment=long")


def value_from_the_command_line() -> dict[str, Any]:
    """Nothing overrides a value on the command line."""
    return _composed("self_first", "train.batch_size=8", "+train.extra=1")


def optional_overlay_and_placeholders() -> dict[str, Any]:
    """The file of a machine overrides the main config on purpose; `???` and null are placeholders."""
    return _composed("overlaid")


def experiment_over_an_overlay() -> dict[str, Any]:
    """All of these together."""
    return _composed("overlaid", "experiment=long")


def main_config_over_a_default() -> dict[str, Any]:
    """The usual order: the value of the group is a default, and the main config overrides it."""
    return _composed("pinned")


def without_a_composition() -> dict[str, Any]:
    """A plain mapping has no provenance."""
    return {"config": {"cfg": {"train": {"batch_size": 8}}}, "expect": {"not_examined": "No config folder is known"}}


def _composed(name: str, *overrides: str) -> dict[str, Any]:
    return {"config": {"config_dir": CONF, "config_name": name, "overrides": overrides}}
