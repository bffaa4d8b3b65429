"""A default in the Hydra composition silently overrides a value that was set more explicitly.

## What it finds
A leaf whose last setting is less explicit than an earlier one. There are three levels: choices on the command line,
lines of the main config itself, and configs from its defaults lists. Typical cases:

- A config chosen on the command line (`train=large`) loses a value to a default that was not chosen.
- A line of the main config is overridden by a config of its own defaults list, because `_self_` is above it.
- The same inside a config group that builds on a base config.

## Why it hurts
Hydra merges the defaults list from top to bottom, and the last setting wins without a message. The file says 64, the
run uses 16, and the experiment is recorded as 64. The default position of `_self_` changed between Hydra 1.0 and 1.1,
so an upgrade can reverse a config that was correct.

## Evidence
The leaf, its final value, every overridden value, and the file and line of each, in the order of merging.

## Fix
Move `_self_` below the defaults that the config should override, or move the default that wins above the chosen group.
`python train.py --cfg job` prints the composed config without running the job.

## When it stays silent
- A more explicit setting overrides a less explicit one: an experiment file from the command line overrides the main
  config, `train.batch_size=8` overrides everything.
- Two defaults of the same level, where the later one refines the earlier one.
- Equal values, and the placeholders `???` and `null`.
- Defaults marked `optional`, which are meant to override.

A value that the main config sets over the chosen group is an `info`, because many projects want that.

## Cost
The configuration is composed once more, which takes a few milliseconds.

## Lesson
[Lab 93](../../lessons/frameworks/93_sixty_four.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.config_composition import ConfigComposition, ConfigLeaf, Setting, show_value
from debugkit.rule import Context, rule
from debugkit.rule_text import code, quoted


@rule(
    "DK901",
    name="config-value-overridden",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("config",),
    needs=(ConfigComposition,),
)
def judge(seen: ConfigComposition, context: Context) -> Iterator[Finding]:
    found: dict[tuple[str, int], list[tuple[ConfigLeaf, Setting]]] = {}
    for leaf in seen.leaves:
        loser = _wrongly_overridden(leaf)
        if loser is not None:  # one misplaced line of a defaults list can override many values: one finding
            found.setdefault((leaf.winner.source, loser.explicitness), []).append((leaf, loser))
    for each in found.values():
        yield _finding(each, context)


def _wrongly_overridden(leaf: ConfigLeaf) -> Setting | None:
    """The most explicit overridden setting, if the setting that overrides it is less explicit."""
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
    typed = lost.chosen_by == "the command line" and won.chosen_by != lost.chosen_by
    severity = Severity.INFO if pinned else Severity.ERROR if typed else Severity.WARNING
    loser = f"{code(lost.source)}, chosen on the command line," if typed else code(lost.place)
    winner = f"{code(won.place)} (the main config)" if pinned else f"{code(won.place)}, a default that is merged later"
    if len(pairs) == 1:
        what = f"{code(leaf.key)} is {show_value(won.value)}, not {show_value(lost.value)}"
    else:
        keys = quoted(f"{each.key}={show_value(other.value)}" for each, other in pairs)
        what = f"{len(pairs)} values ({keys}) have no effect"
    return context.finding(
        f"{what}: {loser} is overridden by {winner}.",
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
        return (
            f"Delete the value from `{won.source}` if `{lost.source}` should decide. Nothing to do if this is intended."
        )
    if lost.source in won.below:
        return f"In the defaults list of `{lost.source}`, move `_self_` below the line that includes `{won.source}`."
    return f"In the defaults list, move the line that includes `{won.source}` above the line of `{lost.source}`."
