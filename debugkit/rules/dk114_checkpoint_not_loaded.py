"""The model does not hold what its checkpoint holds: wrong names, or tensors left as they were initialised.

## What it finds
Tensors of the declared checkpoint that are nowhere in the model, tensors of the model that it does not have and that
were not declared fresh, other shapes, and values that are not those of the file.

## Why it hurts
`strict=False`, or an `except` around `load_state_dict`, turns a wrong prefix into a log line. The tower is then random,
the policy merely mediocre, and days go into data and hyperparameters.

## Evidence
How many tensors of the file are in the model, which are not, which of the model's it lacks, and the exchange of a
prefix that would make the names fit.

## Fix
Rename the keys and load with `strict=True`, or look at `missing_keys` and `unexpected_keys` and raise on any that you
did not name.

## When it stays silent
No checkpoint is declared (`Declare(checkpoint="model.safetensors", fresh=("action_head.*",))`; a path or a state dict).
A tied key saved once, another precision, keys that a wrapper renames (an adapter's `base_layer`, DDP, compile), integer
buffers. Once the optimizer has taken steps other values are expected, and only names and shapes are compared.

## Cost
Free: it reads the file and compares.

## Lesson
[Lab 49](../../lessons/actions/49_unloaded_weights.md)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.checkpoint_match import CheckpointMatch
from debugkit.registry import Context, rule


@rule(
    "DK114",
    name="checkpoint-not-loaded",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check",),
    needs=(CheckpointMatch,),
)
def judge(seen: CheckpointMatch, context: Context) -> Iterator[Finding]:
    evidence = _evidence(seen)
    if seen.unexpected or seen.mismatched:
        names = [*(mismatch.name for mismatch in seen.mismatched), *seen.unexpected]
        lost = len(names)
        yield context.finding(
            f"{lost} of {seen.tensors} tensors of the checkpoint fit nothing in the model: {_listed(names)}."
            + (
                f" They begin with {seen.renaming[0]!r}, the model's with {seen.renaming[1]!r}."
                if seen.renaming
                else ""
            ),
            module=_module(seen.missing or [mismatch.name for mismatch in seen.mismatched]),
            evidence=evidence,
            fix="Rename the keys so that they fit and load with strict=True.",
            affects=seen.missing,
        )
    elif seen.missing:
        yield context.finding(
            f"{len(seen.missing)} tensors of the model are not in the checkpoint and keep their initialisation: "
            f"{_listed(seen.missing)}.",
            module=_module(seen.missing),
            evidence=evidence,
            fix="Load them from elsewhere, or declare them: Declare(fresh=(…)).",
            affects=seen.missing,
        )
    if seen.different and seen.trained_since is None:
        yield context.finding(
            f"{len(seen.different)} of {seen.tensors} tensors do not have the checkpoint's values: "
            f"{_listed(seen.different)}.",
            module=_module(seen.different),
            parameter=seen.different[0] if len(seen.different) == 1 else None,
            evidence=evidence,
            fix="See that load_state_dict ran, that its error was not caught, and that nothing initialised them since.",
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


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + " …" * (len(names) > 3)


def _module(names: Sequence[str]) -> str | None:
    """The innermost module that has all of them."""
    if not names:
        return None
    shared = names[0].split(".")[:-1]
    for name in names[1:]:
        parts = name.split(".")
        shared = shared[: next((i for i, part in enumerate(shared) if part != parts[i]), len(shared))]
    return ".".join(shared)
