"""Where each value of a composed configuration comes from, and what it beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from debugkit.finding import SourceLine
from debugkit.observations.plain import PlainData

Chooser = Literal["a defaults list", "the main config", "the command line"]
"""Who put a setting into the composition; in this order, the later is the more explicit choice."""
_EXPLICITNESS: tuple[Chooser, ...] = ("a defaults list", "the main config", "the command line")


@dataclass(frozen=True, slots=True)
class Setting:
    """One place that sets one leaf."""

    value: object
    """As written: an interpolation is not resolved, `???` is a missing value."""
    source: str
    """The config, `train/large`, or the override as it was typed, `train.batch_size=64`."""
    chosen_by: Chooser
    package: str = ""
    """Where the config's content is put; `""` is the root."""
    below: tuple[str, ...] = ()
    """The configs whose defaults lists lead to this one, the nearest first."""
    optional: bool = False
    """Whether its defaults list calls it optional, as overlays of one machine are."""
    at: SourceLine | None = None
    """Its line in the YAML file; None for the command line and for structured configs."""

    @property
    def explicitness(self) -> int:
        """0 for a default, 1 for the main config's own line, 2 for a choice made on the command line."""
        return _EXPLICITNESS.index(self.chosen_by)

    @property
    def place(self) -> str:
        """`train/large.yaml:3`, or the override."""
        if self.at is None:
            return self.source
        return f"{self.source}.yaml:{self.at.line}"


@dataclass(frozen=True, slots=True)
class ConfigLeaf:
    """One leaf with all that set it, in the order of merging: the last one stands."""

    key: str
    settings: tuple[Setting, ...]

    @property
    def winner(self) -> Setting:
        """The setting that stands."""
        return self.settings[-1]

    @property
    def beaten(self) -> tuple[Setting, ...]:
        """The settings that do not, the first one first."""
        return self.settings[:-1]


@dataclass(frozen=True)
class ConfigComposition(PlainData):
    """The provenance of every leaf of one composition; printed, it is a table of the leaves."""

    config_name: str
    overrides: tuple[str, ...]
    leaves: tuple[ConfigLeaf, ...]

    def of(self, key: str) -> ConfigLeaf:
        """The leaf of a dotted key. Raises KeyError with the keys that end alike."""
        for leaf in self.leaves:
            if leaf.key == key:
                return leaf
        last = key.rpartition(".")[2]
        near = ", ".join(leaf.key for leaf in self.leaves if leaf.key.rpartition(".")[2] == last)
        raise KeyError(f"There is no leaf {key!r}." + (f" There is: {near}." if near else ""))

    def __str__(self) -> str:
        width = max((len(leaf.key) for leaf in self.leaves), default=0)
        values = {leaf.key: show_value(leaf.winner.value) for leaf in self.leaves}
        value_width = min(24, max(map(len, values.values()), default=0))
        lines = []
        for leaf in self.leaves:
            line = f"{leaf.key:<{width}}  {values[leaf.key]:<{value_width}}  {leaf.winner.place}"
            beaten = ", ".join(f"{show_value(loser.value)} ({loser.place})" for loser in reversed(leaf.beaten))
            lines.append(f"{line}   beats {beaten}" if beaten else line)
        return "\n".join(lines)


def show_value(value: object) -> str:
    """A value as YAML would have it on one line: text that reads as a number keeps its quotes."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value if reads_as(value) is None and value else repr(value)
    return str(value)


def reads_as(text: str) -> str | None:
    """What a person takes a text for: `a number`, `a truth value`, `nothing`; None for mere text."""
    bare = text.strip().lower()
    if bare in ("true", "false", "yes", "no", "on", "off"):
        return "a truth value"
    if bare in ("none", "null", "~"):
        return "nothing"
    try:
        float(bare.replace("_", ""))
    except ValueError:
        return None
    return None if bare in ("nan", "inf", "infinity") else "a number"
