"""How a model learnt one batch and, if it did not, which reasons were ruled out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from debugkit.plain_data import PlainData


@dataclass(frozen=True)
class Suspect(PlainData):
    """One possible reason: what was measured, and whether it explains why the batch was not learnt."""

    name: str
    guilty: bool
    measured: str


@dataclass(frozen=True)
class Overfit(PlainData):
    """The result of `overfit_one_batch`; true if the batch was learnt.

    `losses` are the loss before each step and after the last. The verdict is `learnt` if the loss fell below
    `threshold` times its start, `diverged` if it is not finite or ends above its start, and `stuck` otherwise.
    """

    losses: tuple[float, ...]
    verdict: Literal["learnt", "stuck", "diverged"]
    threshold: float
    suspects: tuple[Suspect, ...] = ()

    def __bool__(self) -> bool:
        return self.verdict == "learnt"

    def __str__(self) -> str:
        first, last = self.losses[0], self.losses[-1]
        lines = [f"{self.verdict}: {first:.4g} → {last:.4g} in {len(self.losses) - 1} steps   {sparkline(self.losses)}"]
        lines += [f"  {'→' if one.guilty else ' '} {one.name:<24} {one.measured}" for one in self.suspects]
        return "\n".join(lines)


def sparkline(values: tuple[float, ...], width: int = 40) -> str:
    """The curve in one line of block characters; `!` where a value is not finite."""
    picked = [values[round(i * (len(values) - 1) / max(1, width - 1))] for i in range(min(width, len(values)))]
    finite = [v for v in picked if abs(v) < float("inf")]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    span = (high - low) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[int(7 * (v - low) / span)] if abs(v) < float("inf") else "!" for v in picked)
