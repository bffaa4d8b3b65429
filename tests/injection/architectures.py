"""Compose a training program from a seed: a model, its data, its loss and a loop, as source text.

`compose(seed)` decides everything by the seed. The seeds go through the kinds in turn, so that a range of as many
seeds as there are kinds has each of them once.
"""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from injection.loop import loop


@dataclass(frozen=True)
class Part:
    """What a kind adds to a program: the text of its model, data and loss."""

    model: str
    """Classes and `build_model()`."""
    data: str
    """The class `Data(count, seed)`, and a `collate` if one is needed."""
    loss: str
    """`compute_loss(model, batch)`."""
    task: str
    rate: float = 1e-3
    """A usual learning rate of Adam."""
    after: str = ""
    """Lines between the model and its optimizer, such as a copy that follows it."""
    declare: str = ""
    """Arguments of `debugkit.Declare` that a user of this kind of program would give."""
    imports: tuple[str, ...] = ()
    loop: dict[str, object] = field(default_factory=dict)
    """Choices of the loop that this kind does not leave to the seed."""


@dataclass(frozen=True)
class Composed:
    """A program: its text, and what it is."""

    seed: int
    kind: str
    task: str
    text: str


Kind = Callable[[random.Random], Part]
_KINDS: dict[str, Kind] = {}
_HEAD = """import copy
import math
import random

import numpy as np
import torch
{imports}from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed({seed})
random.seed({seed})
np.random.seed({seed})
"""


def kind(make: Kind) -> Kind:
    """Register a kind of program under its function's name."""
    if make.__name__ in _KINDS:
        raise ValueError(f"There are two kinds named {make.__name__}.")
    _KINDS[make.__name__] = make
    return make


def kinds() -> dict[str, Kind]:
    """Every kind by its name, sorted."""
    for path in sorted((Path(__file__).parent / "kinds").glob("[a-z]*.py")):
        importlib.import_module(f"injection.kinds.{path.stem}")
    return dict(sorted(_KINDS.items()))


def compose(seed: int) -> Composed:
    """The healthy program of a seed."""
    registered = kinds()
    name = list(registered)[seed % len(registered)]
    chance = random.Random(f"program {seed}")
    part = registered[name](chance)
    imports = "".join(f"{line}\n" for line in part.imports)
    declare = f"declare = debugkit.Declare({part.declare})\n" if part.declare else "declare = None\n"
    pieces = [
        _HEAD.format(imports=imports, seed=seed) + ("import debugkit\n" if part.declare else ""),
        part.data,
        part.model,
        part.loss,
        f"model = build_model().to(device)\n{declare}{part.after}",
        loop(chance, part.rate, part.data, part.loop),
    ]
    text = "\n\n".join(piece.strip("\n") + "\n" for piece in pieces)
    return Composed(seed, name, part.task, re.sub(r"\n{4,}", "\n\n\n", text))
