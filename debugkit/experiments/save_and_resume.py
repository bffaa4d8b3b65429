"""Two steps, against one step, save, load and one step: bit for bit the same, if the state_dicts hold all there is."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from debugkit.experiments import experiment
from debugkit.experiments.bit_digest import digest
from debugkit.finding import NotExamined
from debugkit.held_generators import States, held_generators, held_generators_restored, put_back
from debugkit.observations.resumed_step import ResumedStep, UnsavedState
from debugkit.restore import restored, same_randomness
from debugkit.step import one_line
from debugkit.subject import Subject

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_OF_EVERY_OPTIMIZER = frozenset(("state", "param_groups", "defaults"))


@experiment(ResumedStep, cost=9, requires=("batch", "optimizer"))
def save_and_resume(subject: Subject) -> ResumedStep:
    """Three steps; two more where they differ, to see whether the first two repeat themselves at all."""
    if any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in subject.optimizers):
        raise NotExamined("LBFGS steps through a closure, which the loop has and check() has not.")
    with _from_the_start(subject):
        unsaved_before = _unsaved(subject)
        _step(subject, seed=0)
        unsaved = _changed(unsaved_before, _unsaved(subject))
        checkpoint = _Checkpoint.of(subject)
        straight = _after_a_step(subject)
    with _from_the_start(subject):
        try:
            checkpoint.load(subject)
        except Exception as error:
            return ResumedStep(0, (), False, unsaved, load_error=one_line(error))
        resumed = _after_a_step(subject)
    different = tuple(name for name, bits in straight.items() if resumed.get(name) != bits)
    loss_differs = "loss" in different
    different = tuple(name for name in different if name != "loss")
    repeatable = not (different or loss_differs) or _two_steps(subject) == straight
    return ResumedStep(len(straight), different, loss_differs, unsaved, repeatable=repeatable)


@contextlib.contextmanager
def _from_the_start(subject: Subject) -> Iterator[None]:
    with held_generators_restored(subject), restored(subject):
        yield


def _two_steps(subject: Subject) -> dict[str, bytes]:
    with _from_the_start(subject):
        _step(subject, seed=0)
        return _after_a_step(subject)


def _after_a_step(subject: Subject) -> dict[str, bytes]:
    loss = _step(subject, seed=1)
    found = {"loss": digest(loss)}
    for name, tensor in (*subject.model.named_parameters(), *subject.model.named_buffers()):
        found[name] = digest(tensor)
    return found


def _step(subject: Subject, seed: int) -> torch.Tensor:
    with same_randomness(seed):
        for parameter in subject.model.parameters():
            parameter.grad = None
        loss = subject.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in subject.optimizers:
            optimizer.step()
    return loss.detach()


@dataclass
class _Checkpoint:
    """What a person saves: the state_dicts; and the random states, which the loop is trusted to save as well."""

    saved: bytes
    generators: States

    @classmethod
    def of(cls, subject: Subject) -> _Checkpoint:
        states = [subject.model.state_dict(), *(optimizer.state_dict() for optimizer in subject.optimizers)]
        file = io.BytesIO()
        try:
            torch.save(states, file)
        except Exception as error:
            raise NotExamined(f"The state_dicts cannot be saved by torch.save: {one_line(error)}.") from error
        return cls(file.getvalue(), held_generators(subject))

    def load(self, subject: Subject) -> None:
        model_state, *optimizer_states = torch.load(io.BytesIO(self.saved), weights_only=False)
        subject.model.load_state_dict(model_state)
        for optimizer, state in zip(subject.optimizers, optimizer_states, strict=True):
            optimizer.load_state_dict(state)
        put_back(self.generators)


Unsaved = dict[UnsavedState, bytes]


def _unsaved(subject: Subject) -> Unsaved:
    """Digests of what modules and optimizers hold outside their state_dicts."""
    found: Unsaved = {}
    for module, path in subject.module_paths.items():
        held = {name: value for name, value in vars(module).items() if name not in _OF_EVERY_MODULE}
        held |= {name: module._buffers[name] for name in module._non_persistent_buffers_set}
        found |= {UnsavedState(path, name, False): digest(_plain(value)) for name, value in held.items()}
    for optimizer in subject.optimizers:
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
    """Numbers as tensors, so that counters inside containers count too."""
    if isinstance(value, bool | int | float):
        return torch.tensor(value, dtype=torch.float64)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple) or type(value).__name__ == "deque":
        return [_plain(item) for item in value]
    return value
