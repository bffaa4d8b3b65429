"""A key of the configuration that nothing reads: setting it changes nothing.

## What it finds
Leaves that were not read when `check_config(cfg)` was called on a tracked config. First those whose name *was* asked
for at another level, where it is not (`cfg.get("image_mean", default)` while the file says `training.image_mean`).

## Why it hurts
An override under the wrong key is accepted, stored, logged with the run, and never used. The default is. Nothing fails,
and every table of results says otherwise.

## Evidence
The unread leaves; for a misplaced one, the key that was asked for in vain. How many leaves there are and were read.

## Fix
Read the key where it stands, or move it to where it is read. A structured config, or struct mode without
`cfg.get(key, default)`, turns a misplaced key into an error.

## When it stays silent
Printing, saving, comparing, copying or merging the whole config reads nothing, and neither does `OmegaConf.to_yaml`.
Interpolations, `**cfg.model`, iteration, `instantiate(cfg.model)` and converting a part do read it. If the whole config
was made into plain data and no key was read by name, the rule stands aside: reads of a dict cannot be seen. Keys that
only a later phase reads are found too early before it, hence `info`; call `check_config` when setup is done.

## Cost
Free.

## Lesson
[Lab 94](../../lessons/frameworks/94_hydra_wrong_level.md)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observations.config_composition import ConfigComposition
from debugkit.observations.config_reads import ConfigReads
from debugkit.registry import Context, rule

_SHOWN = 8


@rule(
    "DK902",
    name="config-key-never-read",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    cost="F",
    modes=("config",),
    needs=(ConfigReads,),
    uses=(ConfigComposition,),
)
def judge(seen: ConfigReads, composition: ConfigComposition | None, context: Context) -> Iterator[Finding]:
    if not seen.read:
        why = "was turned into plain data, whose reads cannot be seen" if seen.converted else "was not read yet"
        raise NotExamined(f"The config {why}: call check_config(cfg) after setup, on the config that was tracked.")
    unread = [leaf for leaf in seen.leaves if leaf not in seen.read]
    lines = {leaf.key: leaf.winner.at for leaf in composition.leaves} if composition else {}
    counts = {"leaves": len(seen.leaves), "read": len(seen.read.intersection(seen.leaves)), "threshold": "one read"}
    for leaf in unread:
        asked = _asked_elsewhere(leaf, seen.asked_in_vain)
        if asked is not None:
            yield context.finding(
                f"{leaf} is never read, while {asked} was asked for and is not there.",
                at=lines.get(leaf),
                evidence={"key": leaf, "asked for": asked, **counts},
                fix=f"Read {leaf}, or set {asked} instead.",
            )
    rest = [leaf for leaf in unread if _asked_elsewhere(leaf, seen.asked_in_vain) is None]
    if rest:
        yield context.finding(
            _sentence(rest, seen.leaves),
            at=_first_line(rest, lines),
            evidence={"keys": rest, **counts},
            fix="Read the keys, or delete them; if a later phase reads them, check the config after it.",
            severity=Severity.INFO,
        )


def _asked_elsewhere(leaf: str, asked: Iterable[str]) -> str | None:
    name = leaf.rpartition(".")[2]
    return next((key for key in asked if key != leaf and key.rpartition(".")[2] == name), None)


def _sentence(unread: list[str], leaves: tuple[str, ...]) -> str:
    shown = _by_subtree(unread, leaves)
    names = ", ".join(shown[:_SHOWN]) + (", …" if len(shown) > _SHOWN else "")
    if len(unread) == 1:
        return f"Nothing has read {names} until now: changing it changes nothing."
    return f"Nothing has read {len(unread)} of {len(leaves)} keys until now: {names}."


def _by_subtree(unread: list[str], leaves: tuple[str, ...]) -> list[str]:
    """`model.a, model.b` as `model.*` where nothing below `model` was read."""
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
