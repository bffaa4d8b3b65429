"""A term of the loss that does not depend on the targets makes nearly all of the gradient.

## What it finds
The loss is a sum, and its terms are of two kinds: those that change with the targets of the batch, and those that do
not, such as a weight penalty or an entropy bonus. In the parameters that both reach, the gradient of the second kind is
at least 100 times as large as that of the first, and the terms themselves are 500 times as large.

## Why it hurts
The optimizer follows the larger term. A policy with an entropy bonus of 1e4 instead of 1e-4 stays random, and a weight
penalty of 1e5 pulls the weights to zero. The loss falls, so the run looks healthy, but the model learns nothing from
the targets.

## Evidence
The gradient norm of both kinds and their ratio, compared with 100, and the values of the terms with the weights that
they have in the loss, compared with 500. The parameters are those that both kinds reach. The line is the one that
computes the largest term of the second kind.

## Fix
Lower the weight of the term, so that it changes the gradient of the others by a few per cent. Look for a sum over all
elements where a mean was meant.

## When it stays silent
- Terms that depend on the targets: how a cross-entropy and a box loss are weighted is a choice.
- A small regularisation beside a large loss of the data, which is the usual case.
- A large gradient in parameters that no other term reaches, such as a separate auxiliary network.
- A term of the targets that is 0 or has no gradient yet: a warm-up, a margin that all samples keep.
- Batches without targets (an entry that changes the loss and not what the model returns), as in self-supervised
  learning, and models that compute the loss in `forward` and return nothing else.

A loss of more than 8 terms is not examined, where numbers that one operation of one line computes count as one term,
and neither is a batch of more than 12 entries.

## Cost
One forward and one backward pass. If a term is 500 times as large as another, one of both for each entry of the batch,
until a large term depends on one.

## Lesson
No lab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import amount, quoted

TIMES = 100
"""The smallest ratio of the gradients."""
TIMES_AS_LARGE = 500
"""The smallest ratio of the values."""


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """One term of the loss, weighted as in the loss."""

    value: float
    depends_on_targets: bool
    at: SourceLine | None


@measured_by(".measure:compare_the_terms", cost=3, requires=("batch",))
@dataclass(frozen=True, slots=True)
class WeightedTerms:
    """The terms of the loss, and the gradients of those that depend on the targets and of the others.

    There are no terms if none is much larger than the others and independent of the targets.
    """

    terms: tuple[WeightedTerm, ...]
    of_targets: float
    """The gradient norm of the terms that depend on the targets, over the parameters that both kinds reach."""
    of_others: float
    targets: tuple[str, ...]
    """The entries of the batch that change the loss and not what the model returns."""


@rule(
    "DK122",
    name="loss-term-outweighs",
    severity=Severity.WARNING,
    certainty=Certainty.HEURISTIC,
    modes=("check",),
    needs=(WeightedTerms,),
)
def judge(seen: WeightedTerms, context: Context) -> Iterator[Finding]:
    others = [term for term in seen.terms if not term.depends_on_targets]
    own = abs(sum(term.value for term in seen.terms if term.depends_on_targets))
    other = abs(sum(term.value for term in others))
    if not others or not 0 < seen.of_targets * TIMES <= seen.of_others or other < TIMES_AS_LARGE * own:
        return
    largest = max(others, key=lambda term: abs(term.value))
    yield context.finding(
        f"A term of the loss is {amount(largest.value)} and does not depend on the targets ({quoted(seen.targets)}). "
        f"The gradient of such terms is {seen.of_others / seen.of_targets:,.0f} times as large as that of the others.",
        at=largest.at,
        evidence={
            "gradient": seen.of_others,
            "gradient_of_targets": seen.of_targets,
            "ratio": seen.of_others / seen.of_targets,
            "threshold": TIMES,
            "value": other,
            "value_of_targets": own,
            "value_threshold": TIMES_AS_LARGE,
        },
        fix="Lower the weight of this term, or use a mean where it adds up all elements.",
    )
