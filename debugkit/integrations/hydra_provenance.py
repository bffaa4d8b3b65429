"""Composes a Hydra configuration a second time, file by file, and records where each value was set.

Hydra merges the configs of its defaults list in order and applies the overrides last. The result does not show the
values that were overwritten. This module repeats the merges with Hydra's own loader and does not change Hydra's global
state.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import DefaultsList, create_defaults_list
from hydra._internal.utils import create_config_search_path
from hydra.core.default_element import GroupDefault, ResultDefault
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from debugkit.finding import SourceLine
from debugkit.integrations.hydra_yaml import leaf_lines
from debugkit.measurements.config_composition import Chooser, ConfigComposition, ConfigLeaf, Setting

_JOB_NAME = "hydra.job.name=debugkit"  # Hydra requires a job name, also outside a job


def provenance(config_dir: str | Path, config_name: str, overrides: Sequence[str] = ()) -> ConfigComposition:
    """Every leaf of a composition with the configs and overrides that set it, in merge order.

    The `hydra.*` keys are left out. Raises hydra.errors.ConfigCompositionException (or MissingConfigException) where
    Hydra would raise it, and RuntimeError if the repeated merge gives a different result from Hydra's.
    """
    config_name = config_name.removesuffix(".yaml")
    loader = ConfigLoaderImpl(create_config_search_path(str(Path(config_dir).resolve())))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Hydra shows these warnings in the run itself
        parsed, repository = loader._parse_overrides_and_create_caching_repo(config_name, list(overrides))
        defaults = create_defaults_list(
            repo=repository, config_name=config_name, overrides_list=parsed, prepend_hydra=True, skip_missing=False
        )
        composed = loader.load_configuration(config_name, [*overrides, _JOB_NAME], RunMode.RUN, from_shell=False)
        origins = _origins(defaults)
        settings: list[tuple[str, Setting]] = []
        for default in defaults.defaults:
            if default.config_path is None or default.config_path.split("/")[0] == "hydra":
                continue
            content = loader._load_single_config(default, repository).config
            loaded = repository.load_config(config_path=default.config_path)
            lines = _lines(loaded.path if loaded else "", default)
            settings += _of_config(content, default, origins.get(default.config_path, _UNKNOWN), lines)
    for override in defaults.config_overrides:
        if not override.is_delete():
            settings += _of_override(override.key_or_group, override.value(), override.input_line or "")
    final = {key: value for key, value in flatten(composed) if key.split(".")[0] != "hydra"}
    leaves = tuple(ConfigLeaf(key, _that_set(key, settings)) for key in final)
    _agree(leaves, final)
    return ConfigComposition(config_name, tuple(overrides), leaves)


def flatten(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and plain, unresolved values of a config. A list or an empty mapping is one leaf."""
    if isinstance(config, DictConfig) and not (config._is_none() or config._is_missing() or config._is_interpolation()):
        keys = list(config.keys())
        if keys or not prefix:
            for key in keys:
                node = config._get_node(key)
                yield from flatten(node, _join(prefix, key))
            return
        yield prefix, {}
        return
    if isinstance(config, Mapping) and not isinstance(config, DictConfig) and config:
        for key, value in config.items():
            yield from flatten(value, _join(prefix, key))
        return
    yield prefix, _plain(config)


def _join(prefix: str, key: object) -> str:
    return f"{prefix}.{key}" if prefix else str(key)


def _plain(node: Any) -> Any:
    if OmegaConf.is_config(node):
        return OmegaConf.to_container(node, resolve=False)
    return node._value() if hasattr(node, "_value") else node


@dataclass(frozen=True)
class _Origin:
    """Why a config is part of the composition."""

    chosen_by: Chooser
    below: tuple[str, ...]
    optional: bool


_UNKNOWN = _Origin("a defaults list", (), False)


def _origins(defaults: DefaultsList) -> dict[str, _Origin]:
    """For each config of the defaults tree: what selected it, and which defaults lists lead to it."""
    found: dict[str, _Origin] = {}
    chosen = defaults.overrides.override_metadata

    def chooser(node: Any, above: tuple[str, ...]) -> Chooser:
        if node.primary:
            return "the main config"
        known = chosen.get(node.get_override_key()) if isinstance(node, GroupDefault) else None
        if (known and known.external_override) or getattr(node, "external_append", False):
            return "the command line"
        # A group overridden by an experiment file, and a default listed by a selected config, belong to that selection.
        by = known.containing_config_path if known else above[0] if above else None
        return "the command line" if by in from_command_line else "a defaults list"

    def walk(tree: Any, above: tuple[str, ...]) -> None:
        node = getattr(tree, "node", tree)
        path = None if node.is_virtual() or node.is_self() or _absent(node) else node.get_config_path()
        if path is not None and path.split("/")[0] != "hydra":
            optional = node.is_optional()
            found.setdefault(path, _Origin(chooser(node, above), above, optional))
            above = (path, *above)
        for child in getattr(tree, "children", None) or ():
            walk(child, above)

    from_command_line: set[str] = set()
    while True:  # a config further down the list may select others: repeat until nothing changes
        found.clear()
        walk(defaults.defaults_tree, ())
        explicit = {path for path, origin in found.items() if origin.chosen_by == "the command line"}
        if explicit == from_command_line:
            return found
        from_command_line |= explicit


def _absent(node: Any) -> bool:
    return node.is_deleted() or node.is_missing() or node.get_name() is None


def _lines(folder: str, default: ResultDefault) -> dict[str, SourceLine]:
    scheme, _, path = folder.partition("://")
    file = Path(path) / f"{default.config_path}.yaml"
    if scheme != "file" or not file.is_file():
        return {}
    package = default.package or ""
    return {
        (f"{package}.{key}" if package else key): SourceLine(str(file), line) for key, line in leaf_lines(file).items()
    }


def _of_config(
    content: Any, default: ResultDefault, origin: _Origin, lines: Mapping[str, SourceLine]
) -> Iterator[tuple[str, Setting]]:
    assert default.config_path is not None
    setting = Setting(None, default.config_path, origin.chosen_by, default.package or "", origin.below, origin.optional)
    for key, value in flatten(content):
        first = key.split(".")[0]
        if first not in ("hydra", "defaults"):
            yield key, replace(setting, value=value, at=lines.get(key))


def _of_override(key: str, value: Any, typed: str) -> Iterator[tuple[str, Setting]]:
    setting = Setting(None, typed, "the command line")
    for below, each in flatten(OmegaConf.create(value) if isinstance(value, dict) else value, key):
        yield below, replace(setting, value=_plain(each))


def _that_set(key: str, settings: Sequence[tuple[str, Setting]]) -> tuple[Setting, ...]:
    """The settings of the leaf, and those that set one of its parent keys to a plain value."""
    return tuple(
        setting
        for at, setting in settings
        if at == key or (key.startswith(f"{at}.") and setting.value not in ({}, None, "???"))
    )


def _agree(leaves: Sequence[ConfigLeaf], final: Mapping[str, Any]) -> None:
    for leaf in leaves:
        if not leaf.settings or (leaf.winner.value != final[leaf.key] and not _typed_alike(leaf, final[leaf.key])):
            seen = leaf.winner.value if leaf.settings else "nothing"
            raise RuntimeError(
                f"The provenance of {leaf.key} could not be followed: Hydra composed {final[leaf.key]!r}, and the last "
                f"config that sets it has {seen!r}."
            )


def _typed_alike(leaf: ConfigLeaf, value: Any) -> bool:
    """A structured config converts values: `"64"` becomes 64, and a name becomes an enum member."""
    return str(leaf.winner.value) in (str(value), getattr(value, "name", None)) or isinstance(value, list | dict)
