"""The loop or its data loader seeds a global random generator again, so the same random numbers come back.

## What it finds
- In a running loop: two or more steps that end in a random state of torch, NumPy or Python in which an earlier step
  ended, with other states in between.
- In a running loop: a call that seeds torch, NumPy or Python with the same seed in each of four consecutive steps of an
  optimizer, and random numbers that are drawn after it for the loss, so that every step draws the same ones.
- Before training: a data loader that leaves a global random generator in the same state after its first batch, whatever
  the seed was.

## Why it hurts
Noise, dropout masks, augmentations and the order of the data repeat in every epoch, so that the model sees far fewer
different samples than it seems. With a seed in the loss, a diffusion model sees the same noise and the same time steps
in every step. No value is wrong and no error is raised. Typical causes are `torch.manual_seed(0)` in an evaluation
function or in a loss function, and a data set that seeds the global generator for each sample.

## Evidence
The generator, the number of steps whose state came back, the first pair of them, and the line that seeded last. Where
each step seeds, the generators, the number of steps and the seed. For a loader, the generators. The threshold is two
steps whose state came back, four that seed, or one loader.

## Fix
Seed once, before the loop. Where a part must be deterministic, draw from a `torch.Generator` of its own, or restore the
state afterwards (`torch.random.fork_rng()`). Where each epoch needs a seed, add the number of the epoch to it.

## When it stays silent
- A loop that draws nothing; seeds that depend on the epoch or the step; states that are restored after an evaluation or
  after a part that is deterministic on purpose; a single state that comes back (a rollback to a checkpoint); loaders
  with workers, which draw in other processes.
- A seed in each step after which numbers are drawn only under `torch.no_grad()`, or in eval mode while the model is
  trained in train mode, as for a validation with fixed noise.
- Several seeds in one step; a seed before each step of a new optimizer, as in a comparison of learning rates; the
  closure of `LBFGS`, whose loss must not change between its calls.
- A `torch.Generator` that the program seeds in each step: it is a usual way to draw the same constant again.

## Cost
A hash of each generator's state after each of the first 64 steps, and later after a step in which something was seeded.
In the first 16 steps, where one was seeded: a hash of its state whenever gradients are switched on or off.

## Lesson
[Lab 72](../../lessons/reproducibility/72_a_step_apart.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import measured_by, observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, or_too_short, rule
from debugkit.rule_text import code, counted, listed


@dataclass(frozen=True)
class RepeatedStates(PlainData):
    """The steps that ended in a state of one generator in which an earlier step ended, with others in between."""

    generator: str
    steps: int
    first: int
    again: int
    """The first step whose state came back."""
    at: SourceLine | None


@dataclass(frozen=True)
class SeededEachStep(PlainData):
    """Consecutive steps of an optimizer: in each, a line set a generator to one state, and the loss drew from it."""

    generator: str
    steps: int
    """The longest such series."""
    seed: int | None
    """None if it is not an integer."""
    at: SourceLine | None


@observed_by(".measure:RandomStatesProbe")
@dataclass(frozen=True)
class RandomStates(PlainData):
    """The global random states at the ends of the steps, and the seeds in the first ones."""

    steps: int
    moving: bool
    """Whether any state differed between two steps."""
    repeated: tuple[RepeatedStates, ...]
    seeded: tuple[SeededEachStep, ...] = ()
    drawn: bool = False
    """Whether numbers were drawn after a seed in one step, so that the states may be equal at its end."""


@measured_by(".loaders:read_from_two_seeds", cost=0, requires=("dataloader",))
@dataclass(frozen=True)
class LoaderSeeds(PlainData):
    """For each loader that reads in this process: the global generators that it leaves in a fixed state."""

    loaders: tuple[tuple[str, tuple[str, ...]], ...]


_REPEATS = 2
_FEWEST_STEPS = 4
_SEEDED_STEPS = 4


@rule(
    "DK705",
    name="random-state-repeats",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("loader", "watch"),
    needs=(),
    uses=(RandomStates, LoaderSeeds),
)
def judge(states: RandomStates | None, loaders: LoaderSeeds | None, context: Context) -> Iterator[Finding]:
    if context.mode != "watch":
        if loaders is None:
            raise NotExamined("No data loader that reads in this process was given: pass dataloader=.")
        yield from _before_training(loaders, context)
    elif states is not None:
        yield from or_too_short(_while_training(states, context), states.steps, _FEWEST_STEPS)
        if not states.moving and not states.drawn:
            raise NotExamined(
                "The global random states are the same after every step: nothing was drawn, or they were set back."
            )


def _before_training(seen: LoaderSeeds, context: Context) -> Iterator[Finding]:
    for role, generators in seen.loaders:
        if generators:
            yield context.finding(
                f"Reading the {role} loader seeds {listed(_NAMES[name] for name in generators)}: after its first "
                "batch the random state is the same whatever it was before.",
                evidence={"generators": list(generators), "seeds_tried": 2, "threshold": "one loader"},
                fix="Draw from a generator that the data set holds, or derive the seed from a random number.",
            )


def _while_training(seen: RandomStates, context: Context) -> Iterator[Finding]:
    seeded: dict[SourceLine | None, list[SeededEachStep]] = {}
    for one in seen.seeded:
        if one.steps >= _SEEDED_STEPS:
            seeded.setdefault(one.at, []).append(one)
    for at, ones in seeded.items():
        yield _seeded_each_step(at, ones, context)
    for each in seen.repeated:
        if each.steps < _REPEATS or each.at in seeded:
            continue
        yield context.finding(
            f"The random state of {_NAMES[each.generator]} after step {each.again} was already there after step "
            f"{each.first}, and came back in {counted(each.steps, 'step')} so far: something seeds it again, so noise, "
            "dropout and shuffling repeat.",
            at=each.at,
            step=each.again,
            evidence={
                "generator": each.generator,
                "steps": each.steps,
                "first": each.first,
                "again": each.again,
                "threshold": _REPEATS,
            },
            fix="Seed once before the loop, or restore the state afterwards with "
            f"{code('torch.random.fork_rng()')}, or add the number of the epoch to the seed.",
        )


def _seeded_each_step(at: SourceLine | None, seen: list[SeededEachStep], context: Context) -> Finding:
    first = seen[0]
    seed = "the same seed" if first.seed is None else f"the seed {first.seed}"
    return context.finding(
        f"Each of {counted(first.steps, 'consecutive step')} sets the random state of "
        f"{listed(_NAMES[one.generator] for one in seen)} with {seed} and then draws for its loss: every step trains "
        "with the same random numbers.",
        at=at,
        evidence={
            "generators": [one.generator for one in seen],
            "steps": first.steps,
            "seed": first.seed,
            "threshold": _SEEDED_STEPS,
        },
        fix="Seed once before the loop. Draw what must stay the same from a "
        f"{code('torch.Generator')} of its own, or inside {code('torch.random.fork_rng()')}.",
    )


_NAMES = {"torch": "torch", "numpy": "NumPy", "python": "Python's `random`", "cuda": "the GPU"}
