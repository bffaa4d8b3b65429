"""Reads YAML files for what is lost when they are loaded: the line of each key, and keys that stand there twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from debugkit.finding import SourceLine
from debugkit.observations.config_values import RepeatedKey


def leaf_lines(file: Path) -> dict[str, int]:
    """The 1-based line of every dotted key of a YAML file; none where it cannot be parsed."""
    return {key: line for key, line, _ in _keys(_root(file))}


def repeated_keys(file: Path) -> list[RepeatedKey]:
    """Keys that one mapping holds twice, by line. YAML readers differ: PyYAML keeps the last, OmegaConf refuses."""
    first: dict[str, int] = {}
    repeated = []
    for key, line, _ in _keys(_root(file)):
        if key in first:
            repeated.append(RepeatedKey(key, first[key], SourceLine(str(file), line)))
        first.setdefault(key, line)
    return repeated


def leaf_values(file: Path) -> list[tuple[str, Any, SourceLine]]:
    """Dotted keys, values as PyYAML reads them, and lines: what a program gets that calls yaml.safe_load."""
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
