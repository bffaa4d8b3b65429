"""What encoding actions as tokens and decoding them again does, bin by bin."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine


@dataclass(frozen=True, slots=True)
class TokenisedDimension:
    """One action dimension over a fine grid; the two outermost bins, which hold all that is clipped, are left out."""

    dimension: int
    bins: int
    """Bins seen, the outermost included."""
    bias: float
    """Mean over bins of (decoded - middle of the bin) in bin widths: 0 for centres, -0.5 for left edges."""
    outside: int
    """Bins whose decoded value lies outside the bin."""
    worst: float
    """The largest |decoded - middle| in bin widths."""
    unstable: int
    """Tokens whose action encodes to another token, with another action; the outermost included."""


@dataclass(frozen=True, slots=True)
class ActionTokens:
    """One pair of functions."""

    module: str | None
    """The module that has the pair; None for a declared one."""
    encode: str
    decode: str
    at: SourceLine | None
    """The first line of `decode`."""
    low: float
    high: float
    """The range tried."""
    dimensions: tuple[TokenisedDimension, ...]


@dataclass(frozen=True, slots=True)
class ActionTokenisers:
    """Every pair found."""

    pairs: tuple[ActionTokens, ...]
