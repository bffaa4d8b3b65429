"""The optimizer is recreated in each epoch, so its averages (the moments of Adam, the momentum) start from zero.

## What it finds
Three or more optimizers of one class, one after the other, over the same parameters and with the same settings, each of
which trained for one epoch of the same data. The state of one was not passed to the next, and nothing else changed
between the last step of one and the first step of the next. An optimizer whose `state` is emptied in each epoch counts
as a new one. In a run of two epochs, two optimizers are enough if there is no other and the same line made both.

Also a run that continues from a checkpoint with half of it: `optimizer.state_dict()` was saved, a model loaded the
weights of that moment, and a new optimizer of the same class and with the same settings trains them without the state.

## Why it hurts
Adam divides by an average of about a thousand squared gradients, and momentum adds up about ten gradients. Both start
from zero in each epoch: the first steps of Adam are as large as the rate allows, whatever the size of the gradients,
and momentum is small. The loss jumps, or falls more slowly, at the start of each epoch. No error is raised.

## Evidence
How often the optimizer was replaced and the threshold, and the smallest number of steps of a replaced one. The
threshold is 2, or 1 at the end of a run of two epochs. For a checkpoint, how many steps the saved optimizer had made.
The line is the one that makes the optimizer.

## Fix
Make the optimizer once, before the loop over the epochs. If it has to be recreated, load the state of the previous
one: `optimizer.load_state_dict(previous.state_dict())`. After a restart, load it from the checkpoint.

## When it stays silent
- Stages of a training, which change the parameters, the settings or what is frozen.
- Restarts: the rate is higher than at the last step before.
- Rounds: federated averaging, meta-learning and k-fold validation, which load, restore or replace weights; continual
  and active learning, which change the data; rounds of more than one epoch each.
- Plain SGD, which keeps no state, and closures (LBFGS).
- State that is passed on with `load_state_dict()`.
- Loaded weights whose optimizer was not saved, was of another class or had another rate, or trained on other data: a
  fine-tuning begins with a new optimizer.
- Two optimizers that take turns.
- Loops whose batches do not come from a DataLoader are not examined.

## Cost
Copies two small parameters at each step, without waiting for the device, and once more when the state is saved.

## Lesson
No lab of its own; in [Lab 72](../../lessons/reproducibility/72_a_step_apart.md) a restart loses a part of the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule

_REPLACEMENTS = 2
_STEPS = 2
_RESTART = 1.5
"""A rate this many times as high as that of the previous step is a restart, not a step of a schedule."""


@dataclass(frozen=True)
class Replacement(PlainData):
    """An optimizer without state that followed one with state, of the same class and over the same parameters."""

    chain: int
    """Replacements of one chain follow each other: each replaced the optimizer that the one before had introduced."""
    optimizer: str
    steps: int
    """The steps of the optimizer that was replaced."""
    emptied: bool
    """Whether it is the same optimizer, whose `state` was emptied."""
    same_settings: bool
    """Whether both began with the same options, and the same parameters required gradients."""
    unchanged: bool
    """Whether the parameters had the same values at the last step of one and the first of the next."""
    rate_ratio: float | None
    """The rate at the first step of the new one, as a multiple of that at the last step of the old one."""
    epochs: int
    """In how many iterations of a data loader the replaced one stepped; 0 if none was read."""
    same_data: bool
    """Whether the batches of both came from one data set."""
    same_line: bool
    """Whether one line made both, the new one after the last step of the old one."""
    at: SourceLine | None
    """The line that made the new one."""

    @property
    def changes_nothing_else(self) -> bool:
        """Whether only the averages were lost."""
        restarts = self.rate_ratio is not None and self.rate_ratio > _RESTART
        return self.steps >= _STEPS and self.same_settings and self.unchanged and not restarts

    @property
    def follows_an_epoch(self) -> bool:
        """Whether the replaced one trained for one epoch, or a part of one, of the data that the new one trains on."""
        return self.epochs == 1 and self.same_data


@dataclass(frozen=True)
class HalfRestored(PlainData):
    """An optimizer without state whose parameters were loaded from the moment at which another's state was saved."""

    optimizer: str
    steps: int
    """The steps of the other optimizer until its state was saved."""
    same_settings: bool
    other_data: bool
    """Whether the batches of the two are known to come from different data sets."""
    at: SourceLine | None


@observed_by(".measure:ReplacedOptimizersProbe")
@dataclass(frozen=True)
class ReplacedOptimizers(PlainData):
    """The replacements of a run, in order."""

    optimizers: int
    """How many optimizers have stepped."""
    replacements: tuple[Replacement, ...]
    half_restored: tuple[HalfRestored, ...] = ()


@rule(
    "DK511",
    name="optimizer-recreated",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("watch",),
    needs=(ReplacedOptimizers,),
)
def judge(seen: ReplacedOptimizers, context: Context) -> Iterator[Finding]:
    for one in seen.half_restored:
        if one.steps >= _STEPS and one.same_settings and not one.other_data:
            yield _without_its_state(one, context)
    for chain in sorted({one.chain for one in seen.replacements}):
        chained = [one for one in seen.replacements if one.chain == chain]
        at_the_end = context.ended and seen.optimizers == 2 and len(chained) == 1 and chained[0].same_line
        threshold = 1 if at_the_end else _REPLACEMENTS
        run = _longest_run(chained)
        if len(run) < threshold:
            continue
        if not any(one.epochs for one in run):
            raise NotExamined("The optimizer was replaced, but the batches do not come from a torch DataLoader.")
        run = _longest_run(run, of_epochs=True)
        if len(run) < threshold:
            continue
        first = run[0]
        what = f"The state of {first.optimizer} was emptied" if first.emptied else f"{first.optimizer} was recreated"
        times, each = ("once", "") if len(run) == 1 else (f"{len(run)} times", "each time ")
        yield context.finding(
            f"{what} {times}, {each}after at most one epoch, with the same parameters and settings: its averages of "
            "the gradients started from zero again.",
            at=first.at,
            evidence={
                "replacements": len(run),
                "threshold": threshold,
                "fewest_steps": min(one.steps for one in run),
            },
            fix="Do not empty the state of the optimizer in the loop over the epochs."
            if first.emptied
            else "Make the optimizer once, before the loop over the epochs.",
        )


def _without_its_state(one: HalfRestored, context: Context) -> Finding:
    return context.finding(
        f"The weights were loaded as they were when the state of {one.optimizer} was saved, after {one.steps} steps, "
        f"but the new {one.optimizer} did not load the state: its averages of the gradients start from zero.",
        at=one.at,
        evidence={"steps": one.steps, "needed_steps": _STEPS},
        fix='Load the state that was saved with the weights: `optimizer.load_state_dict(checkpoint["optimizer"])`.',
    )


def _longest_run(chain: list[Replacement], *, of_epochs: bool = False) -> list[Replacement]:
    """The longest series of successive replacements that lost only the averages."""
    longest: list[Replacement] = []
    current: list[Replacement] = []
    for one in chain:
        fits = one.changes_nothing_else and (one.follows_an_epoch or not of_epochs)
        current = [*current, one] if fits else []
        longest = max(longest, current, key=len)
    return longest
