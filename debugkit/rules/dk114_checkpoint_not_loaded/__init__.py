"""The model does not hold its checkpoint's values: names do not match, or tensors keep their initialisation.

## What it finds
Tensors of the declared checkpoint that are nowhere in the model, tensors of the model that are not in the checkpoint
and were not declared fresh, tensors of different shape, and values that differ from the file.

## Why it hurts
`strict=False`, or an `except` around `load_state_dict`, turns a wrong prefix into a log line. The tower is then random,
the policy is only mediocre, and the search goes into data and hyperparameters for days.

## Evidence
How many tensors of the file are in the model, which are not, which tensors of the model the file lacks, and the prefix
to replace so that the names match.

## Fix
Rename the keys and load with `strict=True`. Or check `missing_keys` and `unexpected_keys`, and raise for each key that
you do not expect.

## When it stays silent
- No checkpoint is declared (`Declare(checkpoint="model.safetensors", fresh=("action_head.*",))`; a path or a state
  dict).
- A tied key that is saved once, another precision, integer buffers.
- Keys that a wrapper renames (an adapter's `base_layer`, DDP, compile).

Once the optimizer has taken steps the values are expected to differ, and only names and shapes are compared.

## Cost
The file is read once.

## Lesson
[Lab 49](../../lessons/actions/49_sees_less_when_told.md)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity
from debugkit.module_paths import shared_module
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import code, counted, quoted, verb


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A tensor that checkpoint and model have under the same name with different shapes."""

    name: str
    in_checkpoint: tuple[int, ...]
    in_model: tuple[int, ...]


@measured_by(".measure:compare_the_checkpoint", cost=0)
@dataclass(frozen=True, slots=True)
class CheckpointMatch:
    """Names are those of `state_dict()`; a tensor found under another name counts as loaded."""

    tensors: int
    """In the checkpoint."""
    loaded: int
    missing: tuple[str, ...]
    """In the model, not in the checkpoint, and not declared fresh; only parameters and floating buffers."""
    unexpected: tuple[str, ...]
    """In the checkpoint, but nowhere in the model."""
    different: tuple[str, ...]
    """In both, with different values."""
    mismatched: tuple[Mismatch, ...]
    renaming: tuple[str, str] | None
    """The prefix in the checkpoint and the one in the model, if replacing one by the other makes the names match."""
    trained_since: str | None
    """Why the values are expected to differ; None if the model should still be as it was loaded."""


@rule(
    "DK114",
    name="checkpoint-not-loaded",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(CheckpointMatch,),
)
def judge(seen: CheckpointMatch, context: Context) -> Iterator[Finding]:
    evidence = _evidence(seen)
    if seen.unexpected or seen.mismatched:
        names = [*(mismatch.name for mismatch in seen.mismatched), *seen.unexpected]
        match = verb(len(names), "matches", "match")
        yield context.finding(
            f"{len(names):,} of {counted(seen.tensors, 'checkpoint tensor')} {match} no tensor of the "
            f"model: {quoted(names)}."
            + (
                f" Their names {_prefixed(seen.renaming[0])}, those in the model {_prefixed(seen.renaming[1])}."
                if seen.renaming
                else ""
            ),
            module=_module(seen.missing or [mismatch.name for mismatch in seen.mismatched]),
            evidence=evidence,
            fix="Rename the keys so that they match, and load with `strict=True`.",
            affects=seen.missing,
        )
    elif seen.missing:
        count = len(seen.missing)
        yield context.finding(
            f"{counted(count, 'tensor')} of the model {verb(count, 'is', 'are')} not in the checkpoint and "
            f"{verb(count, 'keeps its', 'keep their')} initialisation: {quoted(seen.missing)}.",
            module=_module(seen.missing),
            evidence=evidence,
            fix="Load them from another source, or declare them: `Declare(fresh=(…))`.",
            affects=seen.missing,
        )
    if seen.different and seen.trained_since is None:
        count = len(seen.different)
        yield context.finding(
            f"{count:,} of {counted(seen.tensors, 'tensor')} {verb(count, 'does', 'do')} not have the checkpoint's "
            f"values: {quoted(seen.different)}.",
            module=_module(seen.different),
            parameter=seen.different[0],
            evidence=evidence,
            fix="Check that `load_state_dict()` ran, that its error was not caught, and that no later code "
            "initialises the tensors again.",
            affects=seen.different,
        )


def _evidence(seen: CheckpointMatch) -> dict[str, object]:
    return {
        "tensors": seen.tensors,
        "loaded": seen.loaded,
        "missing": list(seen.missing),
        "unexpected": list(seen.unexpected),
        "different": list(seen.different),
        "mismatched": [[m.name, list(m.in_checkpoint), list(m.in_model)] for m in seen.mismatched],
        "renaming": list(seen.renaming) if seen.renaming else None,
    }


def _prefixed(prefix: str) -> str:
    return f"begin with {code(prefix)}" if prefix else "have no prefix"


def _module(names: Sequence[str]) -> str | None:
    return shared_module(names) if names else None
