"""After a reset, the policy still uses what it saw in the previous episode.

## What it finds
A first action that depends on the observations of the previous episode: a queue of actions, a history of frames, an
ensemble of predictions or a recurrent state that a reset does not clear.

## Why it hurts
Every episode except the first begins with a few actions for another scene. The success rate depends on the order of
the episodes, and the first episode, which is the one that people watch, is always correct.

## Evidence
The change of the first action after an episode of one or three steps with other observations, against a floor of 1e-5;
the attributes that `reset()` left as the episode had made them.

## Fix
Clear every buffer in `reset()`, and call `reset()` at the start of each episode.

## When it stays silent
Policies without memory, and policies whose reset clears it. A policy with memory but without a `reset` (declared, or
`model.reset()`) is reported as a `warning`, because nothing is known that clears the memory.

## Cost
These are seven inferences of a single sample.

## Lesson
[Lab 44](../../lessons/actions/44_good_the_first_time.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, quoted, verb


@measured_by(".measure:play_two_episodes", cost=1, requires=("batch",))
@dataclass(frozen=True, slots=True)
class EpisodeMemory:
    """For one sample, in eval mode, with the same random seed in every inference."""

    has_reset: bool
    moved: float
    """The relative change of the first action after an episode with other observations; the largest of all episode
    lengths tried."""
    steps: int
    """The length of that episode, in steps."""
    floor: float
    output: str
    kept: tuple[tuple[str, str], ...] = ()
    """The attributes that `reset()` left as the episode had made them: the path of the module, and the name."""


@rule(
    "DK406",
    name="policy-remembers-last-episode",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(EpisodeMemory,),
)
def judge(seen: EpisodeMemory, context: Context) -> Iterator[Finding]:
    if seen.moved <= seen.floor:
        return
    names = [f"{module}.{name}".lstrip(".") for module, name in seen.kept]
    because = f": {quoted(names)} {verb(len(names), 'keeps its value', 'keep their values')}" if names else ""
    after = f"another episode of {counted(seen.steps, 'step')}"
    yield context.finding(
        f"The first action changes by {seen.moved:.2g} of its size after {after}"
        + (f" and `reset()`{because}." if seen.has_reset else f", and the policy has no `reset()`{because}."),
        module=seen.kept[0][0] if seen.kept else "",
        evidence={
            "moved": seen.moved,
            "floor": seen.floor,
            "steps": seen.steps,
            "output": seen.output,
            "kept": names,
        },
        fix="Clear every queue, history and recurrent state in `reset()`."
        if seen.has_reset
        else "Add a `reset()` that clears the policy's memory, or declare one: `Declare(reset=lambda policy: …)`.",
        severity=None if seen.has_reset else Severity.WARNING,
    )
