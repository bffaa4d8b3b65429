"""Weights were kept or averaged without a copy, as references to the model's own, so the update changes nothing.

## What it finds
A `load_state_dict()` whose tensors are those of the module itself. They come from an earlier `state_dict()` of it, and
the module was trained, or loaded other weights, in between.

Also a moving average of weights (an EMA, a teacher, a target network) whose update reads nothing but the tensors that
it writes: the average is the trained model itself, as after `ema.model = model`, or the average was passed where the
trained model should have been.

Also a moving average that is almost replaced by the trained weights in each step, because the two coefficients were
swapped: `target = tau * target + (1 - tau) * online` with a `tau` of 0.005, or `average.lerp_(weight, 0.999)`.

## Why it hurts
`state_dict()` returns references and not copies. `best = model.state_dict()` therefore follows the training: after the
last epoch it holds the last weights, and `model.load_state_dict(best)` copies each tensor onto itself. The reported
validation loss is that of the best epoch, and the model that is used is the last one. The same happens to weights that
are put aside while an average is validated. PyTorch's tutorial on
[saving models](https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html) warns about it.

`average.lerp_(weight, 0.01)` changes nothing if both are one tensor, and `average.mul_(0.99).add_(weight, alpha=0.01)`
then makes it smaller in each step. An average that is the model itself is evaluated as if it were smoother. One that
never receives the trained weights stays at the initialisation.

With swapped coefficients, a target network is the online network of the last step, so the targets of the loss move with
every update, and an average is no smoother than the weights.

## Evidence
How many tensors were loaded, all of them the module's own, and the optimizer steps and loads in between. The line is
that of the `state_dict()`, and the evidence names that of the load.

For an average: how many tensors were written, in how many steps, and whether an optimizer holds them. The
addresses of the tensors and the numbers in the calls are compared, in the first three steps; two of them are needed.
The line is that of the update.

For swapped coefficients: the coefficient of the trained weights, which is above 0.9 and below 1 and the same for at
least two tensors and in at least 10 of the first 32 steps. An optimizer holds what enters, and not the average.

## Fix
Keep a copy: `best = copy.deepcopy(model.state_dict())`, or save it to a file.
For an average, `copy.deepcopy(model)` before the training, and the trained model's parameters in each update.
Give the small coefficient to the trained weights: `tau * online + (1 - tau) * target`. `lerp_` takes the coefficient of
its second tensor. To copy the weights, use `load_state_dict`.

## When it stays silent
- Copies: `copy.deepcopy`, `clone()`, tensors on another device, a file.
- A state dict that is loaded before anything changed, such as one in which some entries were replaced.
- A load of which at least one tensor comes from elsewhere: an average of several models, part of a checkpoint.
- Kept weights that are never loaded: what a program saves to a file in the end cannot be told from what it means to.
- An update in which a part is shared on purpose, such as an encoder: other tensors of the same function receive others.
- Averages that receive another tensor with a coefficient of up to 0.9: EMA, `AveragedModel`, soft targets. A frozen
  teacher that is not updated.
- `copy_()` of a tensor onto itself, and products and sums that are no average: weight decay, noise, symmetric weights.
- Copies of the weights, with a coefficient of exactly 1, and coefficients that change, as in the warm-up of an EMA.
- Averages that begin after the third step, or are computed with a factor on a device.
- A `state_dict()` from before `debugkit.watch()`; `debugkit run` sees the whole script.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData, short_line
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, verb

_STEPS = 2
"""In which an average was of itself."""
RATE = 0.9
"""Averages with a larger coefficient of the trained weights are almost these."""
_RATE_STEPS, _RATE_TENSORS = 10, 2
"""In which the coefficient was the same, and of how many tensors."""


@dataclass(frozen=True)
class OwnWeightsLoaded(PlainData):
    """A load of a module's own tensors, which were kept at the line `kept_at` and have changed since."""

    module: str
    """The class of the module."""
    tensors: int
    steps: int
    """The optimizer steps between the two lines."""
    loads: int
    """The other loads between the two lines."""
    kept_at: SourceLine | None
    loaded_at: SourceLine | None


@observed_by(".measure:KeptWeightsProbe")
@dataclass(frozen=True)
class KeptWeights(PlainData):
    """The loads of a run, and those among them that loaded a module's own tensors."""

    loads: int
    own: tuple[OwnWeightsLoaded, ...]


@dataclass(frozen=True)
class SelfAverage(PlainData):
    """The averages that one function of the program wrote, each of a tensor with itself."""

    tensors: int
    steps: int
    """The steps in which they were written, of the first three."""
    trained: bool
    """Whether an optimizer that stepped holds one of the tensors."""
    at: SourceLine | None


@observed_by(".averages:AveragesProbe")
@dataclass(frozen=True)
class SelfAverages(PlainData):
    """The functions of the program that wrote averages of weights, and those that wrote no others than these."""

    averages: int
    of_themselves: tuple[SelfAverage, ...]


@dataclass(frozen=True)
class AverageRate(PlainData):
    """The averages that one function of the program wrote, in which trained weights have the same large coefficient."""

    rate: float
    tensors: int
    steps: int
    at: SourceLine | None


@observed_by(".averages:AverageRatesProbe")
@dataclass(frozen=True)
class AverageRates(PlainData):
    """The functions of the program that wrote such averages."""

    averages: tuple[AverageRate, ...]
    complete: bool
    """Whether the first steps, or the loop, are over, so that the coefficient is known not to change in them."""


@rule(
    "DK513",
    name="kept-weights-not-copied",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(KeptWeights,),
    uses=(SelfAverages, AverageRates),
)
def judge(
    seen: KeptWeights, averages: SelfAverages | None, rates: AverageRates | None, context: Context
) -> Iterator[Finding]:
    for average in averages.of_themselves if averages is not None else ():
        if average.steps >= _STEPS:
            yield _of_itself(average, context)
    for swapped in rates.averages if rates is not None and rates.complete else ():
        if swapped.steps >= _RATE_STEPS and swapped.tensors >= _RATE_TENSORS:
            yield _swapped(swapped, context)
    if not seen.loads and not (averages and averages.averages) and not (rates and rates.averages):
        raise NotExamined("No state dict was loaded while the loop was watched.")
    for one in seen.own:
        changes = [
            counted(count, noun) for count, noun in ((one.steps, "optimizer step"), (one.loads, "load")) if count
        ]
        yield context.finding(
            f"`load_state_dict` restored nothing: the loaded tensors are those of `{one.module}` itself, which have "
            f"changed since they were kept ({' and '.join(changes)}). `state_dict()` returns references.",
            module="",
            at=one.kept_at or one.loaded_at,
            evidence={
                "tensors": one.tensors,
                "steps_in_between": one.steps,
                "loads_in_between": one.loads,
                "loaded_at": short_line(one.loaded_at) if one.loaded_at is not None else None,
            },
            fix="Keep a copy: `copy.deepcopy(model.state_dict())`.",
        )


def _of_itself(average: SelfAverage, context: Context) -> Finding:
    tensors = f"{counted(average.tensors, 'tensor')} {verb(average.tensors, 'was', 'were')}"
    itself = verb(average.tensors, "itself", "themselves")
    what = (
        "the average is the trained weights themselves, and no copy of them"
        if average.trained
        else "no trained weights enter the average"
    )
    return context.finding(
        f"{tensors} averaged with {itself} in each of {counted(average.steps, 'step')}: {what}.",
        module="",
        at=average.at,
        evidence={
            "tensors": average.tensors,
            "steps": average.steps,
            "trained": average.trained,
            "threshold": _STEPS,
        },
        fix="Average into a copy that is made before the training: `copy.deepcopy(model)`."
        if average.trained
        else "Pass the parameters of the trained model to the update.",
    )


def _swapped(average: AverageRate, context: Context) -> Finding:
    kept = 1 - average.rate
    return context.finding(
        f"The trained weights enter the average with a coefficient of {average.rate:.6g}, in each of "
        f"{counted(average.steps, 'step')}: the average keeps only {kept:.3g} of itself, so it is almost a copy.",
        module="",
        at=average.at,
        evidence={
            "coefficient": average.rate,
            "tensors": average.tensors,
            "steps": average.steps,
            "thresholds": [RATE, 1, _RATE_STEPS],
        },
        fix=f"Swap the two coefficients: {kept:.3g} for the trained weights. To copy them, use `load_state_dict`.",
        certainty=Certainty.HEURISTIC,
    )
