"""Hydra compositions in which a less explicit setting beats a more explicit one."""

from pathlib import Path
from typing import Any

CONF = Path(__file__).parent / "conf"


def default_over_the_main_config() -> dict[str, Any]:
    """`_self_` is first, so the group overrides the file that lists it."""
    expect = {"severity": "warning", "message": "`train.batch_size` is 16, not 64"}
    return {"config": {"config_dir": CONF, "config_name": "self_first"}, "expect": expect}


def default_over_what_the_command_line_chose() -> dict[str, Any]:
    """The data group was not chosen, is merged later and sets the batch size."""
    config = {"config_dir": CONF, "config_name": "loud_data", "overrides": ["train=large"]}
    return {"config": config, "expect": {"severity": "error", "message": "2 values (`train.batch_size=256`"}}


def group_that_its_own_base_beats() -> dict[str, Any]:
    """The same one level below: the chosen config lists `_self_` above the base that it builds on."""
    config = {"config_dir": CONF, "config_name": "self_last", "overrides": ["train=turned_around"]}
    return {"config": config, "expect": {"severity": "warning", "message": "`train.batch_size` is 16, not 256"}}


def main_config_over_the_chosen_group() -> dict[str, Any]:
    """Often intended, but the command line asks for a batch of 256, so it is an `info`."""
    config = {"config_dir": CONF, "config_name": "pinned", "overrides": ["train=large"]}
    return {"config": config, "expect": {"severity": "info", "message": "`train.batch_size` is 64, not 256"}}
