"""Values whose type is not what it seems to be."""

from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def quoted_number() -> dict[str, Any]:
    """Another config of the composition sets the same key to a number, which proves that it should be one."""
    config = {"config_dir": HERE / "conf", "config_name": "quoted"}
    expect = {"severity": "error", "message": "`optim.lr` in `quoted.yaml:6` is the string `'1e-4'`"}
    return {"config": config, "expect": expect}


def quoted_override() -> dict[str, Any]:
    """One quote too many on the command line."""
    config = {"config_dir": HERE / "conf", "config_name": "healthy", "overrides": ["optim.lr='1e-4'"]}
    return {"config": config, "expect": {"severity": "error", "message": "Another config sets it to a float."}}


def words_that_are_true() -> dict[str, Any]:
    """`None` is a string, and so is a quoted boolean."""
    return {"config": {"config_dir": HERE / "conf", "config_name": "words"}, "expect": {"count": 2}}


def yaml_read_by_hand() -> dict[str, Any]:
    """yaml.safe_load reads 1e-4 as a string, because YAML 1.1 requires a dot in a number with an exponent."""
    config = {"files": [HERE / "read_by_hand.yaml"]}
    return {
        "config": config,
        "expect": {"severity": "warning", "message": "`train.lr` in `read_by_hand.yaml:2` is the string `'1e-4'`"},
    }


def key_that_stands_twice() -> dict[str, Any]:
    """PyYAML keeps the second value."""
    config = {"files": [HERE / "twice.yaml"]}
    return {"config": config, "expect": {"severity": "error", "message": "lines 2 and 4"}}


def number_in_quotes() -> dict[str, Any]:
    """It may be intended, so it is an `info`."""
    return {"config": {"cfg": {"steps": "100"}}, "expect": {"severity": "info"}}
