"""After a reset the policy still acts on what it saw in the episode before.

## What it finds
A first action that depends on the observations of the previous episode: a queue of actions, a history of frames, an
ensemble of predictions or a recurrent state that a reset does not clear.

## Why it hurts
Every episode but the first begins with a few actions meant for another scene. Success rates depend on the order of
episodes, and the first episode, the one that is looked at, is always fine.

## Evidence
How far the first action moves after an episode of one or three steps with other observations, against a floor of
1e-5.

## Fix
Clear every buffer in `reset()`, and call it at the start of each episode.

## When it stays silent
Policies without memory, and those whose reset clears it. Without a `reset` (declared, or `model.reset()`), a policy
that remembers is reported as a `warning`: nothing known can clear it.

## Cost
Seven inferences of a single sample.

## Lesson
[Lab 44](../../lessons/actions/44_episode_memory.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.episode_memory import EpisodeMemory
from debugkit.registry import Context, rule


@rule(
    "DK406",
    name="policy-remembers-last-episode",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="1F",
    modes=("check",),
    needs=(EpisodeMemory,),
)
def judge(seen: EpisodeMemory, context: Context) -> Iterator[Finding]:
    if seen.moved <= seen.floor:
        return
    after = f"an episode of {seen.steps} step{'s' * (seen.steps != 1)}"
    yield context.finding(
        f"The first action differs by {seen.moved:.2g} of its size after {after} and a reset."
        if seen.has_reset
        else f"The first action differs by {seen.moved:.2g} of its size after {after}, and the policy has no reset.",
        evidence={"moved": seen.moved, "floor": seen.floor, "steps": seen.steps, "output": seen.output},
        fix="Clear every queue, history and recurrent state in reset()."
        if seen.has_reset
        else "Give the policy a reset() that clears its memory, or declare one: Declare(reset=lambda policy: …).",
        severity=None if seen.has_reset else Severity.WARNING,
    )
