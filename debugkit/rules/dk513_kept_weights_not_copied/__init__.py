"""The best weights were kept without a copy, as references to the model's own, so loading them changes nothing.

## What it finds
A `load_state_dict()` whose tensors are those of the module itself. They come from an earlier `state_dict()` of it, and
the module was trained, or loaded other weights, in between.

## Why it hurts
`state_dict()` returns references and not copies. `best = model.state_dict()` therefore follows the training: after the
last epoch it holds the last weights, and `model.load_state_dict(best)` copies each tensor onto itself. The reported
validation loss is that of the best epoch, and the model that is used is the last one. The same happens to weights that
are put aside while an average is validated. PyTorch's tutorial on
[saving models](https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html) warns about it.

## Evidence
How many tensors were loaded, all of them the module's own, and the optimizer steps and loads in between. The line is
that of the `state_dict()`, and the evidence names that of the load.

## Fix
Keep a copy: `best = copy.deepcopy(model.state_dict())`, or save it to a file.

## When it stays silent
- Copies: `copy.deepcopy`, `clone()`, tensors on another device, a file.
- A state dict that is loaded before anything changed, such as one in which some entries were replaced.
- A load of which at least one tensor comes from elsewhere: an average of several models, part of a checkpoint.
- Kept weights that are never loaded: what a program saves to a file in the end cannot be told from what it means to.
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
from debugkit.rule_text import counted


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


@rule(
    "DK513",
    name="kept-weights-not-copied",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("watch",),
    needs=(KeptWeights,),
)
def judge(seen: KeptWeights, context: Context) -> Iterator[Finding]:
    if not seen.loads:
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
