"""Compare two steps in a row with two steps that have saving and loading in between: they must be bit-identical."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from debugkit._torch_private import unsaved_buffers_of
from debugkit.finding import NotExamined
from debugkit.frames import one_line
from debugkit.interventions.bit_digest import digest
from debugkit.interventions.held_generators import States, held_generators, held_generators_restored, put_back
from debugkit.preserve_state import Undo, held_by_the_loss, preserved
from debugkit.randomness import same_randomness
from debugkit.rules.dk704_resume_differs import ResumedStep, UnsavedState
from debugkit.setup import TrainingSetup

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_OF_EVERY_OPTIMIZER = frozenset(("state", "param_groups", "defaults"))


def save_and_resume(setup: TrainingSetup) -> ResumedStep:
    """Run three steps; if the results differ, run two more to see whether the steps are repeatable at all."""
    if any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in setup.optimizers):
        raise NotExamined("LBFGS needs a closure, which only the training loop has.")
    with _from_the_start(setup):
        unsaved_before = _unsaved(setup)
        _step(setup, seed=0)
        unsaved = _changed(unsaved_before, _unsaved(setup))
        checkpoint = _Checkpoint.of(setup)
        straight = _after_a_step(setup)
    with _from_the_start(setup):
        try:
            checkpoint.load(setup)
        except Exception as error:
            return ResumedStep(0, (), False, unsaved, load_error=one_line(error))
        resumed = _after_a_step(setup)
    different = tuple(name for name, bits in straight.items() if resumed.get(name) != bits)
    loss_differs = "loss" in different
    different = tuple(name for name in different if name != "loss")
    repeatable = not (different or loss_differs) or _two_steps(setup) == straight
    return ResumedStep(len(straight), different, loss_differs, unsaved, repeatable=repeatable)


@contextlib.contextmanager
def _from_the_start(setup: TrainingSetup) -> Iterator[None]:
    with held_generators_restored(setup), preserved(setup):
        yield


def _two_steps(setup: TrainingSetup) -> dict[str, bytes]:
    with _from_the_start(setup):
        _step(setup, seed=0)
        return _after_a_step(setup)


def _after_a_step(setup: TrainingSetup) -> dict[str, bytes]:
    loss = _step(setup, seed=1)
    found = {"loss": digest(loss)}
    for name, tensor in (*setup.model.named_parameters(), *setup.model.named_buffers()):
        found[name] = digest(tensor)
    return found


def _step(setup: TrainingSetup, seed: int) -> torch.Tensor:
    with same_randomness(seed):
        for parameter in setup.model.parameters():
            parameter.grad = None
        loss = setup.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in setup.optimizers:
            optimizer.step()
    return loss.detach()


@dataclass
class _Checkpoint:
    """What a training loop should save: the state_dicts and the random states."""

    saved: bytes
    generators: States
    held: list[Undo]
    """What the loss function holds is in no state_dict, and may be data: it is the same after the checkpoint."""

    @classmethod
    def of(cls, setup: TrainingSetup) -> _Checkpoint:
        states = [setup.model.state_dict(), *(optimizer.state_dict() for optimizer in setup.optimizers)]
        file = io.BytesIO()
        try:
            torch.save(states, file)
        except Exception as error:
            raise NotExamined(f"The state_dicts cannot be saved by torch.save: {one_line(error)}.") from error
        return cls(file.getvalue(), held_generators(setup), list(held_by_the_loss(setup)))

    def load(self, setup: TrainingSetup) -> None:
        model_state, *optimizer_states = torch.load(io.BytesIO(self.saved), weights_only=False)
        setup.model.load_state_dict(model_state)
        for optimizer, state in zip(setup.optimizers, optimizer_states, strict=True):
            optimizer.load_state_dict(state)
        put_back(self.generators)
        for undo in self.held:
            undo()


Unsaved = dict[UnsavedState, bytes]


def _unsaved(setup: TrainingSetup) -> Unsaved:
    """Digests of the attributes of modules and optimizers that are not in their state_dicts."""
    found: Unsaved = {}
    for module, path in setup.module_paths.items():
        held = {name: value for name, value in vars(module).items() if name not in _OF_EVERY_MODULE}
        held |= unsaved_buffers_of(module)
        found |= {UnsavedState(path, name, False): digest(_plain(value)) for name, value in held.items()}
    for optimizer in setup.optimizers:
        held = {name: value for name, value in vars(optimizer).items() if name not in _OF_EVERY_OPTIMIZER}
        label = type(optimizer).__name__
        found |= {
            UnsavedState(label, name, True): digest(_plain(value))
            for name, value in held.items()
            if not name.startswith("_")
        }
    return found


def _changed(before: Unsaved, after: Unsaved) -> tuple[UnsavedState, ...]:
    return tuple(state for state, bits in after.items() if before.get(state) != bits)


def _plain(value: Any) -> Any:
    """The value with its numbers as tensors, so that the digest includes counters inside containers."""
    if isinstance(value, bool | int | float):
        return torch.tensor(value, dtype=torch.float64)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple) or type(value).__name__ == "deque":
        return [_plain(item) for item in value]
    return value
