"""Pairs of functions that should be inverses of each other: declared, or found by their names on the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from debugkit.setup import TrainingSetup


@dataclass(frozen=True, eq=False)
class PairedMethods:
    """Two functions, where the second should undo the first."""

    module: str | None
    """Dotted path of the module that has the pair, itself or on an object that it holds; None for a declared pair."""
    owner: Any
    """The object that has both methods; None for a declared pair."""
    names: tuple[str, str] | None
    """The names under which they were found; None for a declared pair."""
    forth: Callable[[torch.Tensor], Any]
    back: Callable[[torch.Tensor], Any]


def paired_methods(
    setup: TrainingSetup,
    declared: tuple[Callable[..., Any], Callable[..., Any]] | None,
    names: Sequence[tuple[str, str]],
) -> Iterator[PairedMethods]:
    """The declared pair alone, otherwise every pair with one of these names on a submodule or an object it holds."""
    if declared is not None:
        yield PairedMethods(None, None, None, *declared)
        return
    seen: set[int] = set()
    for module, path in setup.module_paths.items():
        for owner in (module, *vars(module).values()):
            if id(owner) in seen or isinstance(owner, torch.Tensor | type):
                continue
            seen.add(id(owner))
            for pair in names:
                forth, back = (getattr(owner, name, None) for name in pair)
                if callable(forth) and callable(back):
                    yield PairedMethods(path, owner, pair, forth, back)
