"""Action tokens do not decode to the actions that they encode.

## What it finds
- Bins that decode to a value off their centre, always in the same direction (left edges instead of centres).
- Bins that decode to a value outside the bin.
- Tokens that become another token after decoding and encoding again.

## Why it hurts
A bias of half a bin in the same direction at every step adds up to centimetres over an episode, while the token
accuracy is perfect. Tokens that change (strings that are tokenised again, an offset of one) move the arm to a wrong
place from time to time.

## Evidence
On a fine grid of actions, for the worst dimension: the mean of (decoded - centre) in bin widths, against 0.1; the
number of bins that decode to a value outside the bin; and the number of tokens that change. The two outermost bins
also hold all clipped values, so they count only for tokens that change.

## Fix
Decode to bin centres, `(edges[:-1] + edges[1:]) / 2`, and map ids by arithmetic, never through strings.

## When it stays silent
Bins of any width, rounding instead of flooring, clipping at the ends, and values inside their bins whose offsets from
the centre cancel out (the means of the data in each bin). Tokenisers that turn a chunk into fewer tokens (FAST) are
not examined. Pairs are found by name, or declared with `Declare(action_tokens=(encode, decode))`.

## Cost
Only the two functions are called, on a grid of values.

## Lesson
[Lab 34](../../lessons/data/34_drifts_to_one_corner.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, function_text, sentence, verb


@dataclass(frozen=True, slots=True)
class TokenisedDimension:
    """One action dimension on a fine grid, without the two outermost bins, which also hold all clipped values."""

    dimension: int
    bins: int
    """Number of bins on the grid, including the outermost."""
    bias: float
    """Mean over bins of (decoded - centre of the bin) in bin widths: 0 for centres, -0.5 for left edges."""
    outside: int
    """Number of bins that decode to a value outside the bin."""
    worst: float
    """The largest |decoded - centre| in bin widths."""
    unstable: int
    """Number of tokens whose action encodes to another token with another action, including the outermost."""


@dataclass(frozen=True, slots=True)
class ActionTokens:
    """One pair of functions."""

    module: str | None
    """The module that has the pair; None for a declared pair."""
    encode: str
    decode: str
    at: SourceLine | None
    """The first line of `decode`."""
    low: float
    high: float
    """The upper end of the grid; `low` is the lower one."""
    dimensions: tuple[TokenisedDimension, ...]


@measured_by(".measure:encode_and_decode", cost=0)
@dataclass(frozen=True, slots=True)
class ActionTokenisers:
    """Every pair found."""

    pairs: tuple[ActionTokens, ...]


LARGEST_BIAS = 0.1
"""In bin widths. A centre is at 0 and an edge at 0.5; the resolution of the grid is below 0.05 for up to 800 bins."""


@rule(
    "DK405",
    name="action-token-round-trip",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(ActionTokenisers,),
)
def judge(seen: ActionTokenisers, context: Context) -> Iterator[Finding]:
    for pair in seen.pairs:
        wrong = [dimension for dimension in pair.dimensions if is_wrong(dimension)]
        if not wrong or any(_is_forwarded_to(pair, other) for other in seen.pairs):
            continue
        worst = max(wrong, key=lambda each: (each.outside, each.unstable, abs(each.bias)))
        encode, decode = function_text(pair.encode, "encodes"), function_text(pair.decode, "decodes")
        yield context.finding(
            f"{sentence(decode)} does not invert {encode}: in dimension {worst.dimension}, {_what(worst)}.",
            module=pair.module,
            at=pair.at,
            evidence={
                "dimensions": [each.dimension for each in wrong],
                "bias_in_bins": worst.bias,
                "threshold": LARGEST_BIAS,
                "bins": worst.bins,
                "bins_decoded_outside": worst.outside,
                "tokens_that_do_not_survive": worst.unstable,
                "range": [pair.low, pair.high],
            },
            fix=f"Decode each token to the centre of the actions that {encode} maps to it.",
        )


def is_wrong(dimension: TokenisedDimension) -> bool:
    """Whether decoding is biased, gives a value outside the bin, or changes the token."""
    return abs(dimension.bias) > LARGEST_BIAS or dimension.outside > 0 or dimension.unstable > 0


def _is_forwarded_to(pair: ActionTokens, other: ActionTokens) -> bool:
    """Whether the other pair is on a submodule of this pair's module with the same result: the fault is there."""
    inner = other.module is not None and other.module.startswith(f"{pair.module}." if pair.module else "")
    return inner and other.module != pair.module and other.dimensions == pair.dimensions


def _what(worst: TokenisedDimension) -> str:
    if worst.outside:
        bins = f"{worst.outside} of {counted(worst.bins, 'bin')}"
        return f"{bins} {verb(worst.outside, 'decodes', 'decode')} to a value outside the bin"
    if abs(worst.bias) > LARGEST_BIAS:
        return f"decoded actions are on average {worst.bias:+.2g} bins away from the centre of their bin"
    tokens = f"{worst.unstable} of {counted(worst.bins, 'token')}"
    return f"{tokens} {verb(worst.unstable, 'becomes', 'become')} another token after decoding and encoding"
