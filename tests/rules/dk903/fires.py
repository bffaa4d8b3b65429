"""Values whose type is not what a person reads."""

from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def quoted_number() -> dict[str, Any]:
    """Another config of the composition gives the same key a number: that it should be one is proved."""
    config = {"config_dir": HERE / "conf", "config_name": "quoted"}
    return {"config": config, "expect": {"severity": "error", "message": "optim.lr is the text '1e-4'"}}


def quoted_override() -> dict[str, Any]:
    """One quote too many on the command line."""
    config = {"config_dir": HERE / "conf", "config_name": "healthy", "overrides": ["optim.lr='1e-4'"]}
    return {"config": config, "expect": {"severity": "error", "message": "another config gives it a number (float)"}}


def words_that_are_true() -> dict[str, Any]:
    """`None` is a word, and so is a quoted truth value."""
    return {"config": {"config_dir": HERE / "conf", "config_name": "words"}, "expect": {"count": 2}}


def yaml_read_by_hand() -> dict[str, Any]:
    """yaml.safe_load makes text of 1e-4, since YAML 1.1 wants a dot in a number."""
    config = {"files": [HERE / "read_by_hand.yaml"]}
    return {"config": config, "expect": {"severity": "warning", "message": "train.lr is the text '1e-4'"}}


def key_that_stands_twice() -> dict[str, Any]:
    """PyYAML keeps the second."""
    config = {"files": [HERE / "twice.yaml"]}
    return {"config": config, "expect": {"severity": "error", "message": "lines 2 and 4"}}


def number_in_quotes() -> dict[str, Any]:
    """It may be meant; worth a line."""
    return {"config": {"cfg": {"steps": "100"}}, "expect": {"severity": "info"}}
