"""A term of the loss is computed from a detached tensor, so that it reaches no parameter.

## What it finds
A loss that is a sum of terms, where at least one term has a graph and another has none, because it was computed from a
tensor that had a graph and lost it: by `detach()`, `.data`, `torch.tensor(x)`, a `torch.no_grad()` block, or
`torch.autograd.grad()` without `create_graph=True`.

## Why it hurts
The term is part of the loss that is logged, and `backward()` works, because the other terms have a graph. The gradient
of this term is zero: a load-balancing loss balances nothing, a policy term does not move the policy, and a commitment
term does not hold the encoder. Another weight for the term changes nothing either.

## Evidence
The operation that removed the graph, the line that adds the term to the loss, and the value of the term.

## Fix
Remove `detach()`, or compute the term outside the `no_grad` block. If only the value of the term belongs in the loss,
detach the finished term: `loss + term.detach()`.

## When it stays silent
- Terms that are themselves detached: `loss + term.detach()`, also after a sum, a mean or a multiplication by a number;
  terms that are computed under `no_grad` as a whole; and `x - x.detach()`.
- Constants, and terms computed from the batch alone or from a teacher under `no_grad`.
- Terms of detached values that another term uses as constants: the entropy of a detached teacher beside its
  cross-entropy, and the penalty on inferred codes beside the reconstruction from them.
- Terms of frozen parameters or of buffers, such as a codebook that follows a moving average.
- Terms with the value or the weight 0.
- Sums that `backward()` is not called on, and sums that another function takes (the square of a temporal difference).

## Cost
Under `watch()`, only the first three steps are observed.

## Lesson
No lab of its own. [Lab 12](../../lessons/gradients/12_tower_never_moves.md) is about a `detach` in the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import code, module_name


@dataclass(frozen=True, slots=True)
class Term:
    """A scalar that was added to the loss and has no graph, although it was computed from a tensor that had one."""

    operation: str
    """The operation that removed the graph: `detach`, `data`, `no_grad`, `grad`…"""
    at: SourceLine | None
    """The line of that operation."""
    added_at: SourceLine | None
    value: float
    """The value of the term in the loss, without its sign."""
    after_module: str | None = None
    """The module of the last parameter before that operation."""


@observed_by(".measure:LossTermsProbe")
@dataclass(frozen=True)
class LossTerms(PlainData):
    """The terms without a graph of the losses of a step, those of one line once."""

    without_graph: tuple[Term, ...]


@rule(
    "DK121",
    name="loss-term-without-graph",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(LossTerms,),
    consequence_of=("DK105",),
)
def judge(seen: LossTerms, context: Context) -> Iterator[Finding]:
    for term in seen.without_graph:
        if term.value == 0:
            continue
        after = f" after {module_name(term.after_module)}" if term.after_module is not None else ""
        yield context.finding(
            f"{code(term.operation)} stops the gradient{after}, so a term {_added(term)} reaches no parameter.",
            module=term.after_module,
            at=term.at or term.added_at,
            evidence={
                "operation": term.operation,
                "added_at": f"{PurePath(term.added_at.file).name}:{term.added_at.line}" if term.added_at else None,
                "value": term.value,
            },
            fix=_fix(term.operation),
        )


def _added(term: Term) -> str:
    if term.added_at is None or term.at is None or term.added_at == term.at:
        return "of the loss"
    return f"that {code(f'{PurePath(term.added_at.file).name}:{term.added_at.line}')} adds to the loss"


def _fix(operation: str) -> str:
    if operation == "grad":
        return "Pass `create_graph=True` to `torch.autograd.grad`."
    if operation in ("no_grad", "inference_mode"):
        return f"Compute the term outside {code(operation)}. If only its value is wanted, detach the finished term."
    return f"Remove {code(operation)} from the computation. If only the value is wanted, detach the finished term."
