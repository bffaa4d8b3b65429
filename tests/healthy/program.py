"""What a correct program is made of, and the registry of all of them.

A program is a function without arguments, decorated with `@program`, that builds a `Program`: check() gets its parts,
and watch() looks over its `train` loop. Each file beside this one holds the programs of one topic.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import debugkit
from debugkit.declare import Declare
from debugkit.example_call import ExampleCalls
from debugkit.report import Report
from debugkit.script import FindModels, with_experiments
from debugkit.setup import hugging_face_loss
from debugkit.watched_run import Run, chosen_rules

STEPS = 8
"""Steps of each loop: some rules wait for three of a kind, or five."""
LONG = 12
"""Steps of a loop whose length is a field of its program; a test runs it for 40, too."""


@dataclass
class Program:
    """A model with all it takes to train it; a fault is an edit of one of these."""

    model: nn.Module
    draw: Callable[[], Any]
    """A new batch, from torch's global generator."""
    loss_fn: Callable[[nn.Module, Any], Tensor] | None = None
    optimizer: Optimizer | Sequence[Optimizer] | None = None
    train: Callable[[Program], None] | None = None
    """The training loop; the plain one where it is None."""
    loaders: Iterable[Any] | None = None
    declare: Declare | None = None
    batch: Any = None
    """What check() is given; drawn if it is None."""
    steps: int = STEPS
    """How long `train` is; a loop that does not read it always has the same length."""

    def __post_init__(self) -> None:
        if self.optimizer is None:
            trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            self.optimizer = torch.optim.AdamW(trained, lr=1e-3)
        if self.batch is None:
            self.batch = self.draw()

    def loss(self, batch: Any) -> Tensor:
        """The training loss of `batch`."""
        return (self.loss_fn or hugging_face_loss)(self.model, batch)

    def check(self) -> Report:
        """The report before training."""
        return debugkit.check(
            self.model, self.batch, self.loss_fn, self.optimizer, dataloader=self.loaders, declare=self.declare
        )

    def watch(self) -> Report:
        """The report of a run of `train`."""
        self.model.train()
        with debugkit.watch(self.model, self.optimizer, on_finding=lambda _finding: None, declare=self.declare) as run:
            (self.train or plain_steps)(self)
        return run.report

    def run(self) -> Report:
        """The report of `train` as a script: debugkit finds the model, and repeats one of its calls afterwards."""
        rules, calls = chosen_rules(None, None), list[ExampleCalls]()
        self.model.train()
        run = Run(None, rules, on_finding=lambda _finding: None)
        with run, FindModels(run, calls):
            (self.train or plain_steps)(self)
        return with_experiments(run.report, calls, rules, None)


def plain_steps(program: Program) -> None:
    """Zero, forward, backward, step, for each optimizer."""
    optimizers = [program.optimizer] if isinstance(program.optimizer, Optimizer) else program.optimizer
    assert optimizers is not None
    for _ in range(program.steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        program.loss(program.draw()).backward()
        for optimizer in optimizers:
            optimizer.step()


PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(build: Callable[[], Program]) -> Callable[[], Program]:
    """Register a correct program under its function's name."""
    if build.__name__ in PROGRAMS:
        raise ValueError(f"There are two programs named {build.__name__}.")
    PROGRAMS[build.__name__] = build
    return build


def all_programs() -> dict[str, Callable[[], Program]]:
    """Every correct program by its name, from every file of this folder."""
    here = Path(__file__).parent
    for path in sorted(here.glob("*.py")):
        if not path.stem.startswith("test_") and path.stem not in ("__init__", "conftest", "program"):
            importlib.import_module(f"healthy.{path.stem}")
    return dict(PROGRAMS)


def built(name: str) -> Program:
    """One program, always with the same weights and data."""
    build = all_programs()[name]
    torch.manual_seed(0)
    return build()
