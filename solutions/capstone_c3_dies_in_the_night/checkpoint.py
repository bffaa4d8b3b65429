"""Checkpoints: `step_000100.pt` has everything that a run needs to continue after its step 100.

What the job relies on
- A run that was interrupted at any time, and is started again in the same folder, has the same losses and reaches the
  same weights as one that was never interrupted.
- A file is either complete or absent: it is written under another name and then renamed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch


class Stateful(Protocol):
    """Policy, optimizer and sampler."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...


def save(folder: Path, step: int, **parts: Stateful) -> None:
    """Write the checkpoint of the run in `folder` after `step` steps."""
    folder.mkdir(parents=True, exist_ok=True)
    states = {name: part.state_dict() for name, part in parts.items()}
    unfinished = folder / "unfinished.tmp"
    torch.save({"step": step, "random": torch.get_rng_state(), **states}, unfinished)
    unfinished.replace(folder / f"step_{step:06d}.pt")


def newest(folder: Path) -> Path | None:
    """The run's newest checkpoint; None if it has none."""
    return max(folder.glob("step_*.pt"), default=None)


def resume(path: Path, **parts: Stateful) -> int:
    """Load a checkpoint into the parts, and torch's random state; returns the number of steps done."""
    saved = torch.load(path, weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(saved[name])
    torch.set_rng_state(saved["random"])
    return int(saved["step"])
