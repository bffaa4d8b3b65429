"""A config value is a string that looks like a number, a boolean or None, or a key occurs twice in a file.

## What it finds
- A string in scientific notation, such as `"1e-4"`, or any numeric string whose key is a number in another config of
  the composition.
- The strings `"None"` and `"true"`/`"false"`: all of them are true in an `if`.
- A key that occurs twice in one mapping of a file.

## Why it hurts
YAML 1.1 requires a dot in a number with an exponent, so PyYAML reads `lr: 1e-4` as a string. (OmegaConf, and
therefore Hydra, reads a number. A script that calls `yaml.safe_load` reads a string, and a quoted override is one.)
Some optimizers raise on the string. `if cfg.checkpoint:` does not: `"None"` is a path like any other. If a key occurs
twice, PyYAML silently keeps the last value.

## Evidence
The key, the string, what it looks like, and the types of the same key in other configs. For a repeated key, both lines.

## Fix
Write `1.0e-4`, which every YAML reader takes for a number, and `null` for None. Use a structured config, which converts
or rejects values. Delete the wrong line of a repeated key.

## When it stays silent
Numbers that OmegaConf reads as numbers; version numbers, names, identifiers, dates and times, which are strings that
look like numbers; `on`, `off`, `yes` and `no` in quotes, which some libraries use as modes. Other numeric strings, such
as `"64"`, are an `info`.

## Lesson
No lab of its own; lesson 93 has an exercise on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.measurements.config_composition import reads_as
from debugkit.observation import provided_by
from debugkit.rule import Context, rule
from debugkit.rule_text import code, listed


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One leaf with a string value, as the program receives it."""

    key: str
    value: str
    elsewhere: tuple[str, ...] = ()
    """The type names of the values that other configs of the composition give the same key."""
    source: str = ""
    at: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class RepeatedKey:
    """A key that occurs twice in one mapping of a file."""

    key: str
    first_line: int
    at: SourceLine
    """The second line."""


@provided_by("debugkit.integrations.hydra.check_config")
@dataclass(frozen=True, slots=True)
class ConfigValues:
    """Every leaf with a string value, and every repeated key."""

    texts: tuple[ConfigValue, ...]
    repeated: tuple[RepeatedKey, ...]
    leaves: int
    """The number of leaves that were examined."""


_SCIENTIFIC = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_NAMES = re.compile(
    r"(^|_)(version|base|id|uid|uuid|name|tag|tags|date|time|run|job|hash|commit|code|key|token|label|"
    r"prefix|suffix|walltime|image|python|cuda|device|devices|gpu|gpus)s?$"
)
"""Keys whose value may be intended as a string although it looks like a number."""


@rule(
    "DK903",
    name="config-type",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("config",),
    needs=(ConfigValues,),
)
def judge(seen: ConfigValues, context: Context) -> Iterator[Finding]:
    if not seen.leaves and not seen.repeated:
        raise NotExamined("No configuration was given: pass cfg, config_dir= or files=.")
    for key in seen.repeated:
        yield context.finding(
            f"`{key.key}` occurs twice in one mapping, in lines {key.first_line} and {key.at.line}: PyYAML silently "
            "keeps the second value, and OmegaConf raises an error.",
            at=key.at,
            evidence={"key": key.key, "lines": [key.first_line, key.at.line], "threshold": "one line"},
            fix="Delete the wrong line.",
            severity=Severity.ERROR,
            certainty=Certainty.PROOF,
        )
    for text in seen.texts:
        finding = _of_text(text, context)
        if finding is not None:
            yield finding


def _of_text(text: ConfigValue, context: Context) -> Finding | None:
    reading = reads_as(text.value)
    bare = text.value.strip()
    numbers = sorted({"int", "float"}.intersection(text.elsewhere))
    severity, certainty = Severity.WARNING, Certainty.HEURISTIC
    if reading == "a number":
        if numbers:
            severity, certainty = Severity.ERROR, Certainty.PROOF
        elif not _SCIENTIFIC.fullmatch(bare):
            if _NAMES.search(text.key.rpartition(".")[2].lower()) or re.match(r"0\d", bare):
                return None
            severity = Severity.INFO
        fix = f"Write `{_as_number(bare)}` without quotes, which every YAML reader takes for a number."
    elif bare == "None":
        fix = "Write `null`: in YAML, `None` is a string, which is true in an `if`."
    elif bare.lower() in ("true", "false"):
        fix = f"Write `{bare.lower()}` without quotes: any non-empty string is true in an `if`."
    else:
        return None
    kinds = [{"int": "an int", "float": "a float"}[kind] for kind in numbers]
    other = f" Another config sets it to {listed(kinds)}." if kinds else ""
    where = f" in `{text.source}`" if text.source else ""
    return context.finding(
        f"`{text.key}`{where} is the string {code(repr(text.value))}, which looks like {reading}.{other}",
        at=text.at,
        evidence={"key": text.key, "value": text.value, "reads as": reading, "types elsewhere": list(text.elsewhere)},
        fix=fix,
        severity=severity,
        certainty=certainty,
    )


def _as_number(text: str) -> str:
    mantissa, mark, exponent = text.lower().partition("e")
    return f"{mantissa}.0e{exponent}" if mark and "." not in mantissa else text
