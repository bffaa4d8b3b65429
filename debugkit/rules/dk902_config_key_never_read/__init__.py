"""A key of the configuration is never read, so setting it has no effect.

## What it finds
Leaves that have not been read when `check_config(cfg)` is called on a tracked config. A leaf is reported by itself if
the program reads its name at another level, where it does not exist (`cfg.get("image_mean", default)` while the file
has `training.image_mean`).

## Why it hurts
An override under the wrong key is accepted, stored, logged with the run, and never used; the default is used instead.
Nothing fails, and every table of results shows the wrong value.

## Evidence
The unread leaves; for a misplaced leaf, the missing key that the program reads; the number of leaves, and how many
were read.

## Fix
Read the key at its position in the file, or move it to the position where it is read. A structured config, or struct
mode without `cfg.get(key, default)`, turns a misplaced key into an error.

## When it stays silent
Interpolations, `**cfg.model`, iteration, `instantiate(cfg.model)` and converting a part of the config count as reading.
Printing, saving, comparing, copying or merging the whole config, and `OmegaConf.to_yaml`, do not. If the whole config
was converted to plain data and no key was read by name, the rule is not examined, because reads of a dict are not
recorded. Keys that only a later phase reads are reported too early, hence `info`; call `check_config` after setup.

## Lesson
[Lab 94](../../lessons/frameworks/94_three_values_one_curve.md)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.measurements.config_composition import ConfigComposition
from debugkit.observation import provided_by
from debugkit.rule import Context, rule
from debugkit.rule_text import quoted


@provided_by("debugkit.integrations.hydra.check_config")
@dataclass(frozen=True, slots=True)
class ConfigReads:
    """The leaves of a configuration, and the keys that the program read or tried to read, with dots."""

    leaves: tuple[str, ...]
    """Every leaf, in the order of the config; a list is one leaf."""
    read: frozenset[str]
    """The leaves that were read by name, by iteration or through an interpolation."""
    missing_keys: tuple[str, ...]
    """Keys that the program tried to read and that do not exist (`cfg.get("x", …)`), in order."""
    converted: bool
    """Whether the whole config was converted to plain data, whose reads are not recorded."""


_SHOWN = 8


@rule(
    "DK902",
    name="config-key-never-read",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("config",),
    needs=(ConfigReads,),
    uses=(ConfigComposition,),
)
def judge(seen: ConfigReads, composition: ConfigComposition | None, context: Context) -> Iterator[Finding]:
    if not seen.read:
        why = "was converted to plain data, whose reads are not recorded" if seen.converted else "has not been read yet"
        raise NotExamined(f"The config {why}: call check_config(cfg) after setup, on the tracked config.")
    unread = [leaf for leaf in seen.leaves if leaf not in seen.read]
    lines = {leaf.key: leaf.winner.at for leaf in composition.leaves} if composition else {}
    counts = {"leaves": len(seen.leaves), "read": len(seen.read.intersection(seen.leaves)), "threshold": "one read"}
    for leaf in unread:
        elsewhere = _read_elsewhere(leaf, seen.missing_keys)
        if elsewhere is not None:
            yield context.finding(
                f"`{leaf}` is never read. The program reads `{elsewhere}` instead, which does not exist.",
                at=lines.get(leaf),
                evidence={"key": leaf, "asked for": elsewhere, **counts},
                fix=f"Read `{leaf}` in the program, or set `{elsewhere}` in the config.",
            )
    rest = [leaf for leaf in unread if _read_elsewhere(leaf, seen.missing_keys) is None]
    if rest:
        yield context.finding(
            _sentence(rest, seen.leaves),
            at=_first_line(rest, lines),
            evidence={"keys": rest, **counts},
            fix="Delete the keys or read them. If a later phase reads them, call `check_config()` after that phase.",
            severity=Severity.INFO,
        )


def _read_elsewhere(leaf: str, missing: Iterable[str]) -> str | None:
    name = leaf.rpartition(".")[2]
    return next((key for key in missing if key != leaf and key.rpartition(".")[2] == name), None)


def _sentence(unread: list[str], leaves: tuple[str, ...]) -> str:
    names = quoted(_by_subtree(unread, leaves), _SHOWN)
    if len(unread) == 1:
        return f"{names} has not been read so far, so changing it has no effect."
    return f"{len(unread):,} of {len(leaves):,} keys have not been read so far: {names}."


def _by_subtree(unread: list[str], leaves: tuple[str, ...]) -> list[str]:
    """The unread leaves, with `model.*` instead of `model.a, model.b` if nothing below `model` was read."""
    missing, shown = set(unread), dict[str, None]()
    for leaf in unread:
        parts = leaf.split(".")
        for depth in range(1, len(parts)):
            prefix = ".".join(parts[:depth]) + "."
            below = [each for each in leaves if each.startswith(prefix)]
            if len(below) > 1 and missing.issuperset(below):
                shown[f"{prefix}*"] = None
                break
        else:
            shown[leaf] = None
    return list(shown)


def _first_line(unread: list[str], lines: dict[str, SourceLine | None]) -> SourceLine | None:
    return next((line for leaf in unread if (line := lines.get(leaf)) is not None), None)
