"""Healthy compositions in which values are beaten, as they should be."""

from pathlib import Path
from typing import Any

CONF = Path(__file__).parent / "conf"


def group_that_refines_its_base() -> dict[str, Any]:
    """`train=large` lists base first and itself last."""
    return _composed("self_last", "train=large")


def experiment_over_the_main_config() -> dict[str, Any]:
    """The command line chose the experiment, so it may beat everything, the group that it chose itself included."""
    return _composed("self_last", "experiment=long")


def value_from_the_command_line() -> dict[str, Any]:
    """Nothing beats it."""
    return _composed("self_first", "train.batch_size=8", "+train.extra=1")


def optional_overlay_and_placeholders() -> dict[str, Any]:
    """A machine's own file is merged over the main config on purpose; `???` and null are there to be replaced."""
    return _composed("overlaid")


def experiment_over_an_overlay() -> dict[str, Any]:
    """All at once."""
    return _composed("overlaid", "experiment=long")


def main_config_over_a_default() -> dict[str, Any]:
    """The usual order: the group's value is a default and the main config knows better."""
    return _composed("pinned")


def without_a_composition() -> dict[str, Any]:
    """A plain mapping has no history."""
    return {"config": {"cfg": {"train": {"batch_size": 8}}}, "expect": {"not_examined": "No config folder is known"}}


def _composed(name: str, *overrides: str) -> dict[str, Any]:
    return {"config": {"config_dir": CONF, "config_name": name, "overrides": overrides}}
