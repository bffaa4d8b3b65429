"""The values of a configuration, as text and as type, and keys that a file holds twice."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One leaf that holds text, as the program gets it."""

    key: str
    value: str
    elsewhere: tuple[str, ...] = ()
    """Type names of the values that the same key was given by other configs of the composition."""
    source: str = ""
    at: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class RepeatedKey:
    """A key that one mapping of a file holds twice."""

    key: str
    first_line: int
    at: SourceLine
    """The second one."""


@dataclass(frozen=True, slots=True)
class ConfigValues:
    """Every leaf that holds text, and every key that stands twice."""

    texts: tuple[ConfigValue, ...]
    repeated: tuple[RepeatedKey, ...]
    leaves: int
    """How many leaves were looked at."""
