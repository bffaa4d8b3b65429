"""A default of the Hydra composition silently beats a value that somebody chose.

## What it finds
A leaf whose last setting is less explicit than one before it. There are three degrees: what a person asked for on the
command line, what the main config says itself, what its defaults lists bring in. So: a config chosen on the command
line (`train=large`) that loses a value to a default nobody chose; a line of the main config that a default of its own
list is merged over, because `_self_` stands above it; the same inside a config group that builds on a base.

## Why it hurts
Hydra merges the defaults list from top to bottom and the last one wins, without a word. The file says 64, the run takes
16, and the experiment is filed under 64. Which end `_self_` stands at changed between Hydra 1.0 and 1.1, so a config
that was right may have turned around with an upgrade.

## Evidence
The leaf, the value that stands, every value it beat, and the file and line of each, in the order of merging.

## Fix
Move `_self_` below the defaults that the config is to override, or move the default that wins above the group that is
chosen. `python train.py --cfg job` prints the result before anything runs.

## When it stays silent
More explicit over less: an experiment file from the command line over the main config, `train.batch_size=8` over all.
Two defaults of equal standing, of which the later refines the earlier. Equal values, `???` and `null` placeholders.
Defaults marked `optional`, which are overlays by intent. A value that the main config pins over the chosen group is an
`info`: many projects want that.

## Cost
Free: the configuration is composed once more, a few milliseconds.

## Lesson
[Lab 93](../../lessons/frameworks/93_hydra_merge_order.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.config_composition import ConfigComposition, ConfigLeaf, Setting, show_value
from debugkit.registry import Context, rule

_SHOWN = 3


@rule(
    "DK901",
    name="config-value-overridden",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("config",),
    needs=(ConfigComposition,),
)
def judge(seen: ConfigComposition, context: Context) -> Iterator[Finding]:
    found: dict[tuple[str, int], list[tuple[ConfigLeaf, Setting]]] = {}
    for leaf in seen.leaves:
        loser = _wronged(leaf)
        if loser is not None:  # one misplaced line of a defaults list may cost many values
            found.setdefault((leaf.winner.source, loser.explicitness), []).append((leaf, loser))
    for each in found.values():
        yield _finding(each, context)


def _wronged(leaf: ConfigLeaf) -> Setting | None:
    """The most explicit setting that lost, if the winner had no right to beat it."""
    won = leaf.winner
    if won.optional:
        return None
    losers = [lost for lost in leaf.beaten if lost.value not in (None, "???", won.value)]
    if not losers:
        return None
    lost = max(reversed(losers), key=lambda setting: setting.explicitness)
    if lost.explicitness > won.explicitness:
        return lost
    equals = (each for each in reversed(losers) if each.explicitness == won.explicitness)
    return next((each for each in equals if each.source in won.below), None)


def _finding(pairs: list[tuple[ConfigLeaf, Setting]], context: Context) -> Finding:
    leaf, lost = pairs[0]
    won = leaf.winner
    pinned = won.chosen_by == "the main config"
    asked = lost.chosen_by == "the command line" and won.chosen_by != lost.chosen_by
    severity = Severity.INFO if pinned else Severity.ERROR if asked else Severity.WARNING
    chosen = f"{lost.source}, chosen on the command line," if asked else lost.place
    by = "the main config itself" if pinned else "a default"
    if len(pairs) == 1:
        what = f"{leaf.key} is {show_value(won.value)}, not {show_value(lost.value)}"
    else:
        keys = ", ".join(f"{each.key} = {show_value(other.value)}" for each, other in pairs[:_SHOWN])
        what = f"{len(pairs)} values ({keys}{', …' if len(pairs) > _SHOWN else ''}) have no effect"
    return context.finding(
        f"{what}: {chosen} is beaten by {won.place}, {by} that is merged later.",
        at=won.at,
        evidence={
            "keys": [each.key for each, _ in pairs],
            "stands": won.value,
            "beaten": [{"value": each.value, "by whom": each.chosen_by, "place": each.place} for each in leaf.beaten],
            "explicitness": {"of the winner": won.explicitness, "of the beaten": lost.explicitness},
        },
        fix=_fix(lost, won, pinned),
        severity=severity,
        certainty=Certainty.HEURISTIC if pinned else None,
    )


def _fix(lost: Setting, won: Setting, pinned: bool) -> str:
    if pinned:
        return f"If {lost.source} is to decide, delete the value from {won.source}; if it is pinned on purpose, ignore."
    if lost.source in won.below:
        return f"In the defaults list of {lost.source}, move `_self_` below the line that brings in {won.source}."
    return f"In the defaults list, move the line that brings in {won.source} above the one of {lost.source}."
