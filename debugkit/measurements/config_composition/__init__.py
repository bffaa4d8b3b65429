"""Where each value of a composed configuration comes from, and which other values it overrides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from debugkit.finding import SourceLine
from debugkit.observation import provided_by
from debugkit.plain_data import PlainData

Chooser = Literal["a defaults list", "the main config", "the command line"]
"""What put a setting into the composition, from the least to the most explicit choice."""
_EXPLICITNESS: tuple[Chooser, ...] = ("a defaults list", "the main config", "the command line")


@dataclass(frozen=True, slots=True)
class Setting:
    """One place that sets one leaf."""

    value: object
    """The value as written: interpolations are not resolved, and `???` is a missing value."""
    source: str
    """The config (`train/large`), or the override as typed (`train.batch_size=64`)."""
    chosen_by: Chooser
    package: str = ""
    """The package of the config; `""` is the root."""
    below: tuple[str, ...] = ()
    """The configs whose defaults lists lead to this one, the nearest first."""
    optional: bool = False
    """Whether its defaults list marks it as optional, as for machine-specific overlays."""
    at: SourceLine | None = None
    """Its line in the YAML file; None for the command line and for structured configs."""

    @property
    def explicitness(self) -> int:
        """0 for a default, 1 for a line in the main config, 2 for the command line."""
        return _EXPLICITNESS.index(self.chosen_by)

    @property
    def place(self) -> str:
        """`train/large.yaml:3`, or the override."""
        if self.at is None:
            return self.source
        return f"{self.source}.yaml:{self.at.line}"


@dataclass(frozen=True, slots=True)
class ConfigLeaf:
    """One leaf with all its settings in merge order. The last one wins."""

    key: str
    settings: tuple[Setting, ...]

    @property
    def winner(self) -> Setting:
        """The setting that takes effect."""
        return self.settings[-1]

    @property
    def beaten(self) -> tuple[Setting, ...]:
        """The overridden settings, in merge order."""
        return self.settings[:-1]


@provided_by("debugkit.integrations.hydra.check_config")
@dataclass(frozen=True)
class ConfigComposition(PlainData):
    """The provenance of every leaf of one composition. `str()` gives a table of the leaves."""

    config_name: str
    overrides: tuple[str, ...]
    leaves: tuple[ConfigLeaf, ...]

    def of(self, key: str) -> ConfigLeaf:
        """The leaf of a dotted key. Raises KeyError, which lists keys with the same last part."""
        for leaf in self.leaves:
            if leaf.key == key:
                return leaf
        last = key.rpartition(".")[2]
        near = ", ".join(leaf.key for leaf in self.leaves if leaf.key.rpartition(".")[2] == last)
        raise KeyError(f"There is no leaf {key!r}." + (f" Leaves with the same last part: {near}." if near else ""))

    def __str__(self) -> str:
        width = max((len(leaf.key) for leaf in self.leaves), default=0)
        values = {leaf.key: show_value(leaf.winner.value) for leaf in self.leaves}
        value_width = min(24, max(map(len, values.values()), default=0))
        lines = []
        for leaf in self.leaves:
            line = f"{leaf.key:<{width}}  {values[leaf.key]:<{value_width}}  {leaf.winner.place}"
            beaten = ", ".join(f"{show_value(lost.value)} ({lost.place})" for lost in reversed(leaf.beaten))
            lines.append(f"{line}   overrides {beaten}" if beaten else line)
        return "\n".join(lines)


def show_value(value: object) -> str:
    """A value in YAML syntax on one line. Text that reads as a number keeps its quotes."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value if reads_as(value) is None and value else repr(value)
    return str(value)


def reads_as(text: str) -> str | None:
    """The YAML type that a text looks like: `a number`, `a boolean`, `null`; None for any other text."""
    bare = text.strip().lower()
    if bare in ("true", "false", "yes", "no", "on", "off"):
        return "a boolean"
    if bare in ("none", "null", "~"):
        return "null"
    try:
        float(bare.replace("_", ""))
    except ValueError:
        return None
    return None if bare in ("nan", "inf", "infinity") else "a number"
