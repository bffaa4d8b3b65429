"""A term of the loss is computed from a detached tensor, so that it reaches no parameter.

## What it finds
A loss that is a sum of terms, where at least one term has a graph and another has none, because it was computed from a
tensor that had a graph and lost it: by `detach()`, `.data`, `torch.tensor(x)`, a `torch.no_grad()` block, or
`torch.autograd.grad()` without `create_graph=True`.

In a running loop, also a term that was converted to a number before it was added (`loss + term.item()`, `float(term)`,
`term.detach()`), if trainable parameters that the optimizer holds get no gradient because of it.

## Why it hurts
The term is part of the loss that is logged, and `backward()` works, because the other terms have a graph. The gradient
of this term is zero: a load-balancing loss balances nothing, a policy term does not move the policy, and a commitment
term does not hold the encoder. Another weight for the term changes nothing either. The parameters of a head whose loss
is converted to a number keep their initial values.

## Evidence
The operation that removed the graph, the line that adds the term to the loss, and the value of the term.

For a converted term, the number in the loss is the same multiple of the converted value in each of the first three
steps, within one millionth. The parameters in the graph of that value have no `.grad` in any step of the optimizer that
holds them, in at least five steps.

## Fix
Remove `detach()`, or compute the term outside the `no_grad` block. If only the value of the term belongs in the loss,
detach the finished term: `loss + term.detach()`. For logging, keep the number in a variable of its own.

## When it stays silent
- Terms that are themselves detached: `loss + term.detach()`, also after a sum, a mean or a multiplication by a number;
  terms that are computed under `no_grad` as a whole; and `x - x.detach()`. This holds if the parameters behind the
  term get a gradient from another term or another loss.
- Values that are only logged, before or after `backward()`; parameters that are frozen, that no optimizer holds, or
  whose own optimizer does not step.
- Constants, and terms computed from the batch alone or from a teacher under `no_grad`.
- Terms of detached values that another term uses as constants: the entropy of a detached teacher beside its
  cross-entropy, and the penalty on inferred codes beside the reconstruction from them.
- Terms of frozen parameters or of buffers, such as a codebook that follows a moving average.
- Terms with the value or the weight 0.
- Sums that `backward()` is not called on, and sums that another function takes (the square of a temporal difference).

## Cost
Under `watch()`, operations are observed in the first three steps only, and after that `.grad` of the parameters behind
a converted term.

## Lesson
No lab of its own. [Lab 12](../../lessons/gradients/12_tower_never_moves.md) is about a `detach` in the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from debugkit.finding import Certainty, Finding, NotExamined, Severity, SourceLine
from debugkit.module_paths import shared_module
from debugkit.observation import observed_by
from debugkit.plain_data import PlainData
from debugkit.rule import Context, rule
from debugkit.rule_text import code, counted, module_name, quoted, verb

FEWEST_STEPS = 5
"""Steps of an optimizer in which a parameter has no gradient."""


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


@dataclass(frozen=True, slots=True)
class ConvertedTerm:
    """A number in the loss that is `factor` times a value with a graph, which was converted to a number."""

    operation: str
    """`item`, `float`, `tolist`, `detach`, `data` or `tensor`."""
    at: SourceLine | None
    """The line of the conversion."""
    added_at: SourceLine | None
    factor: float
    parameters: tuple[str, ...]
    """Those in the graph of the value that an optimizer holds and that never had a gradient."""
    outside: int
    """How many more of them do not belong to the model."""
    numel: int
    steps: int
    """The smallest number of optimizer steps in which one of them had no gradient."""


@observed_by(".converted_terms:ConvertedTermsProbe")
@dataclass(frozen=True)
class ConvertedTerms(PlainData):
    """The converted terms of a running loop, those of one line once."""

    terms: tuple[ConvertedTerm, ...]


@rule(
    "DK121",
    name="loss-term-without-graph",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(),
    uses=(LossTerms, ConvertedTerms),
    consequence_of=("DK105",),
)
def judge(seen: LossTerms | None, converted: ConvertedTerms | None, context: Context) -> Iterator[Finding]:
    if seen is None and converted is None:
        raise NotExamined(context.missing.get(LossTerms, "No operation of a step was observed."))
    if seen is not None:
        yield from _without_graph(seen, context)
    if converted is not None:
        yield from _converted(converted, context)


def _converted(seen: ConvertedTerms, context: Context) -> Iterator[Finding]:
    for term in seen.terms:
        count = len(term.parameters) + term.outside
        named = f" ({quoted(term.parameters, 2)})" if term.parameters else ""
        yield context.finding(
            f"{code(term.operation)} stops the gradient of a term {_added(term)}: {counted(count, 'parameter')}{named} "
            f"of the optimizer {verb(count, 'has', 'have')} had no gradient in {term.steps} steps.",
            module=shared_module(term.parameters) if term.parameters else None,
            at=term.at or term.added_at,
            evidence={
                "operation": term.operation,
                "added_at": _place(term.added_at),
                "factor": term.factor,
                "parameters": list(term.parameters),
                "outside_the_model": term.outside,
                "numel": term.numel,
                "steps": term.steps,
                "threshold": FEWEST_STEPS,
            },
            fix=f"Add the term itself to the loss, and use {code(term.operation)} only for what is logged. If these "
            "parameters should not train, freeze them with `requires_grad_(False)`.",
            affects=term.parameters,
        )


def _without_graph(seen: LossTerms, context: Context) -> Iterator[Finding]:
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
                "added_at": _place(term.added_at),
                "value": term.value,
            },
            fix=_fix(term.operation),
        )


def _added(term: Term | ConvertedTerm) -> str:
    if term.added_at is None or term.at is None or term.added_at == term.at:
        return "of the loss"
    return f"that {code(_place(term.added_at))} adds to the loss"


def _place(line: SourceLine | None) -> str | None:
    return f"{PurePath(line.file).name}:{line.line}" if line else None


def _fix(operation: str) -> str:
    if operation == "grad":
        return "Pass `create_graph=True` to `torch.autograd.grad`."
    if operation in ("no_grad", "inference_mode"):
        return f"Compute the term outside {code(operation)}. If only its value is wanted, detach the finished term."
    return f"Remove {code(operation)} from the computation. If only the value is wanted, detach the finished term."
