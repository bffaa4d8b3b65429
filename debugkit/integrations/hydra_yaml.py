"""Reads from YAML files what a YAML loader discards: the line of each key, and repeated keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from debugkit.finding import SourceLine
from debugkit.rules.dk903_config_type import RepeatedKey


def leaf_lines(file: Path) -> dict[str, int]:
    """The 1-based line of every dotted key of a YAML file; empty if the file cannot be parsed."""
    return {key: line for key, line, _ in _keys(_root(file))}


def repeated_keys(file: Path) -> list[RepeatedKey]:
    """Keys that occur twice in one mapping, with lines. PyYAML keeps the last value; OmegaConf raises an error."""
    first: dict[str, int] = {}
    repeated = []
    for key, line, _ in _keys(_root(file)):
        if key in first:
            repeated.append(RepeatedKey(key, first[key], SourceLine(str(file), line)))
        first.setdefault(key, line)
    return repeated


def leaf_values(file: Path) -> list[tuple[str, Any, SourceLine]]:
    """Dotted keys, values and lines. The values are those that `yaml.safe_load` returns."""
    loader = yaml.SafeLoader("")
    return [
        (key, loader.construct_object(node, deep=True), SourceLine(str(file), line))
        for key, line, node in _keys(_root(file))
        if not isinstance(node, yaml.MappingNode)
    ]


def _root(file: Path) -> yaml.Node | None:
    try:
        return yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None


def _keys(node: yaml.Node | None, prefix: str = "") -> Iterator[tuple[str, int, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
            continue
        path = f"{prefix}.{key.value}" if prefix else key.value
        yield path, key.start_mark.line + 1, value
        yield from _keys(value, path)
