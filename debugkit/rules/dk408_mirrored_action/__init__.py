"""A dimension of the action is mirrored between two sources of a data set, such as two robots.

## What it finds
A data set of several sources in which one number of the action has the opposite sign, or the opposite of two values, in
one of them. The sources are the parts of a `ConcatDataset`, or the values of an entry of the frames that is called
`source`, `robot`, `robot_type`, `embodiment`, `dataset`, `dataset_name` or `dataset_index`.

One of two things shows it:

- In both sources the number has the same two values, as commands of a gripper do. The states of that dimension are
  distributed alike, and the shares of the two values are exchanged.
- In consecutive frames of an episode, the state moves along with the action in one source, and against it in the other.

## Why it hurts
The same image then has two opposite targets, and the policy learns something between them. Each source is consistent
with its own robot, so a policy that is trained on one of them works, and so does every test of one of them.

## Evidence
The two sources, how many frames of each were read, the share of the higher value in each, and how far apart the states
are (Kolmogorov–Smirnov distance). Or the correlation of the action with the change of the state in each source.

## Fix
Agree on one convention, such as -1 for an open gripper. Convert each source where its frames are loaded, and convert
the policy's actions back for each robot.

## When it stays silent
- Other tasks, in which the states differ as the actions do: one source holds an object most of the time.
- Numbers with more than two values, unless consecutive frames of an episode show how the state answers: a task to the
  right has other movements than one to the left.
- Sources in which the state moves as the action says, such as a left and a right arm that mirror each other.
- A source in which state and action are both mirrored.
- Constant numbers, sources with other values (0 and 1 next to -1 and 1), and fewer than 32 frames of a source.
- State and action are matched by index. Two-valued numbers are compared only if both have the same width. Frames
  without a state are not examined.

## Cost
Reads at most 128 frames of each part of a data set and 1,024 of all of them, or 512 of a data set without parts.

## Lesson
[Lab 46](../../lessons/actions/46_better_on_half_the_data.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import amount, code


@dataclass(frozen=True, slots=True)
class Source:
    """One of the sources of a data set."""

    name: str
    frames: int
    made_at: SourceLine | None
    """The program's function that makes the frames."""


@dataclass(frozen=True, slots=True)
class TwoSources:
    """One dimension of the action in two sources."""

    dimension: int
    one: int
    other: int
    """Which of the sources."""
    high: float | None
    """The higher of the two values that the dimension has in both sources; None if it has others."""
    shares: tuple[float, float]
    """The share of the higher value in each source."""
    state_distance: float
    """Kolmogorov–Smirnov distance of the states of this dimension in the two sources; NaN if there is none."""
    state_distance_mirrored: float
    """The same, if the states of one source are mirrored about the middle of their range."""
    responses: tuple[float, float]
    """In each source: the correlation of the action with the change of the state; NaN if it cannot be computed."""


@measured_by(".measure:compare_sources", cost=0, requires=("dataloader",))
@dataclass(frozen=True, slots=True)
class SourcesOfActions:
    """Each dimension of the action in each two sources of a data set."""

    role: str
    """The loader whose data set was read."""
    path: str
    """Path of the action in a frame."""
    sources: tuple[Source, ...]
    compared: tuple[TwoSources, ...]


FAR = 0.5
NEAR = 0.2
CLEAR = 0.7


def shares_are_exchanged(pair: TwoSources) -> bool:
    """Whether the shares of two values are exchanged although the states are alike."""
    one, other = pair.shares
    actions = pair.high is not None and abs(one - other) >= FAR and abs(one - (1 - other)) <= NEAR
    return actions and pair.state_distance <= NEAR and pair.state_distance_mirrored >= FAR


def responses_are_opposite(pair: TwoSources) -> bool:
    """Whether the state moves along with the action in one source, and against it in the other."""
    return min(pair.responses) <= -CLEAR and max(pair.responses) >= CLEAR


@rule(
    "DK408",
    name="mirrored-action",
    severity=Severity.WARNING,
    certainty=Certainty.STATISTICAL,
    modes=("check", "loader"),
    needs=(SourcesOfActions,),
)
def judge(seen: SourcesOfActions, context: Context) -> Iterator[Finding]:
    mirrored = [pair for pair in seen.compared if shares_are_exchanged(pair) or responses_are_opposite(pair)]
    for dimension in dict.fromkeys(pair.dimension for pair in mirrored):
        pairs = [pair for pair in mirrored if pair.dimension == dimension]
        odd = _odd_one(pairs)
        pair = next(pair for pair in pairs if odd in (pair.one, pair.other))
        first, second = (0, 1) if pair.one == odd else (1, 0)
        source, reference = seen.sources[odd], seen.sources[pair.other if pair.one == odd else pair.one]
        own_share, others_share = pair.shares[first], pair.shares[second]
        own_response, others_response = pair.responses[first], pair.responses[second]
        name, against = code(source.name), code(reference.name)
        evidence: dict[str, object] = {
            "dimension": dimension,
            "sources": [source.name, reference.name],
            "frames": [source.frames, reference.frames],
            "loader": seen.role,
        }
        if responses_are_opposite(pair):
            how = (
                f"the state moves {_way(own_response)} the action in {name} (correlation {own_response:.2f}), and "
                f"{_way(others_response)} it in {against} ({others_response:.2f})"
            )
            evidence |= {"correlation": [own_response, others_response], "threshold": CLEAR}
        else:
            how = (
                f"it is {amount(pair.high or 0.0)} in {own_share:.0%} of the frames of {name} and in "
                f"{others_share:.0%} of those of {against}, although the states are alike"
            )
            evidence |= {
                "share_of_the_higher_value": [own_share, others_share],
                "state_distance": pair.state_distance,
                "state_distance_mirrored": pair.state_distance_mirrored,
                "thresholds": [FAR, NEAR],
            }
        yield context.finding(
            f"`{seen.path}[{dimension}]` of source {name} is mirrored against that of {against}: {how}.",
            input=seen.path,
            at=source.made_at,
            evidence=evidence,
            fix=f"Convert `{seen.path}[{dimension}]` of each source to one convention where its frames are loaded, and "
            "convert the policy's actions back for each robot.",
        )


def _odd_one(pairs: list[TwoSources]) -> int:
    """The source that is mirrored against the most others; of several, the last."""
    sources = [source for pair in pairs for source in (pair.one, pair.other)]
    return max(sources, key=lambda source: (sources.count(source), source))


def _way(correlation: float) -> str:
    return "along with" if correlation > 0 else "against"
