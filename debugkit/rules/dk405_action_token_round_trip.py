"""Action tokens do not decode to the actions they stand for.

## What it finds
Bins whose decoded value is not in their middle (left edges instead of centres), bins that decode to another bin's
actions, and tokens that are another token after decoding and encoding.

## Why it hurts
Half a bin of bias in the same direction at every step adds up to centimetres over an episode, while token accuracy is
perfect. Tokens that do not survive (rare strings that are tokenised again, an offset of one) move the arm elsewhere
now and then.

## Evidence
Over a fine grid, for the worst dimension: the mean of (decoded - middle) in bin widths against 0.1, bins whose value
lies outside them, and tokens that do not survive. The two outermost bins hold what is clipped and count for the last
only.

## Fix
Decode to bin centres, `(edges[:-1] + edges[1:]) / 2`, and map ids by arithmetic, never through strings.

## When it stays silent
Bins of any width, rounding instead of flooring, clipping at the ends, and values inside their bins that are off the
middle this way and that (bin means of data). Tokenisers that turn a chunk into fewer tokens (FAST) are not examined.
Pairs are found by name, or declared with `Declare(action_tokens=(encode, decode))`.

## Cost
Free: two small functions, no forward pass.

## Lesson
[Lab 34](../../lessons/data/34_action_token_round_trip.md)
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.action_tokens import ActionTokenisers, ActionTokens, TokenisedDimension
from debugkit.registry import Context, rule

LARGEST_BIAS = 0.1
"""In bin widths. A centre has 0 and an edge 0.5; the grid's own resolution is below 0.05 for up to 800 bins."""


@rule(
    "DK405",
    name="action-token-round-trip",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    cost="F",
    modes=("check",),
    needs=(ActionTokenisers,),
)
def judge(seen: ActionTokenisers, context: Context) -> Iterator[Finding]:
    for pair in seen.pairs:
        wrong = [dimension for dimension in pair.dimensions if is_wrong(dimension)]
        if not wrong or any(_is_handed_on(pair, other) for other in seen.pairs):
            continue
        worst = max(wrong, key=lambda each: (each.outside, each.unstable, abs(each.bias)))
        yield context.finding(
            f"{pair.decode} does not undo {pair.encode}: {_what(worst)} (dimension {worst.dimension}).",
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
            fix=f"Decode each token to the middle of the actions that {pair.encode} gives it.",
        )


def is_wrong(dimension: TokenisedDimension) -> bool:
    """Whether decoding is biased, leaves its bin, or changes the token."""
    return abs(dimension.bias) > LARGEST_BIAS or dimension.outside > 0 or dimension.unstable > 0


def _is_handed_on(pair: ActionTokens, other: ActionTokens) -> bool:
    """Whether a part of this pair's module has the same pair with the same result: the mistake is there."""
    inner = other.module is not None and other.module.startswith(f"{pair.module}." if pair.module else "")
    return inner and other.module != pair.module and other.dimensions == pair.dimensions


def _what(worst: TokenisedDimension) -> str:
    if worst.outside:
        return f"{worst.outside} of {worst.bins} bins come back outside of themselves"
    if abs(worst.bias) > LARGEST_BIAS:
        return f"actions come back {worst.bias:+.2g} of a bin off, all in one direction"
    return f"{worst.unstable} of {worst.bins} tokens are another token after decoding and encoding"
