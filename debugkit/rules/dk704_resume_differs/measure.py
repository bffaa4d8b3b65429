"""Compare two steps in a row with two steps that have saving and loading in between: they must be bit-identical."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from debugkit._torch_private import unsaved_buffers_of
from debugkit.finding import NotExamined
from debugkit.frames import one_line
from debugkit.interventions.bit_digest import digest
from debugkit.interventions.held_generators import States, held_generators, held_generators_restored, put_back
from debugkit.interventions.passes import with_rows
from debugkit.preserve_state import Undo, held_by_the_loss, parameters_beside_the_model, preserved
from debugkit.randomness import same_randomness
from debugkit.rules.dk704_resume_differs import ResumedStep, UnsavedState
from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, map_tensors, tensors_in

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_OF_EVERY_OPTIMIZER = frozenset(("state", "param_groups", "defaults"))


def save_and_resume(setup: TrainingSetup) -> ResumedStep:
    """Run three steps; if the results differ, run two more to see whether the steps are repeatable at all."""
    if any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in setup.optimizers):
        raise NotExamined("LBFGS needs a closure, which only the training loop has.")
    seen, straight = _compared(setup, ())
    if (seen.different or seen.loss_differs) and seen.unsaved and (of_samples := _state_of_samples(setup)):
        seen, straight = _compared(setup, of_samples)
    if seen.load_error is not None or not (seen.different or seen.loss_differs):
        return seen
    return replace(seen, repeatable=_two_steps(setup) == straight)


def _compared(setup: TrainingSetup, of_samples: Collection[UnsavedState]) -> tuple[ResumedStep, dict[str, bytes]]:
    """Three steps, and the results of the second one without saving. `of_samples` is kept, as if it were saved."""
    with _from_the_start(setup):
        unsaved_before = _unsaved(setup)
        _step(setup, seed=0)
        changed = _changed(unsaved_before, _unsaved(setup))
        unsaved = tuple(state for state in changed if state not in of_samples)
        checkpoint = _Checkpoint.of(setup, of_samples)
        straight = _after_a_step(setup)
    with _from_the_start(setup):
        try:
            checkpoint.load(setup)
        except Exception as error:
            return ResumedStep(0, (), False, unsaved, load_error=one_line(error)), straight
        resumed = _after_a_step(setup)
    different = tuple(name for name, bits in straight.items() if resumed.get(name) != bits)
    return ResumedStep(
        len(straight), tuple(name for name in different if name != "loss"), "loss" in different, unsaved
    ), straight


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
        for optimizer in setup.optimizers:
            optimizer.zero_grad(set_to_none=True)
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
    """What is in none of these state_dicts and the same after the checkpoint: parameters of a criterion, which has a
    state_dict of its own; what the loss function holds, which may be data; and state of the samples."""

    @classmethod
    def of(cls, setup: TrainingSetup, of_samples: Collection[UnsavedState]) -> _Checkpoint:
        states = [setup.model.state_dict(), *(optimizer.state_dict() for optimizer in setup.optimizers)]
        file = io.BytesIO()
        try:
            torch.save(states, file)
        except Exception as error:
            raise NotExamined(f"The state_dicts cannot be saved by torch.save: {one_line(error)}.") from error
        held = [*held_by_the_loss(setup), *parameters_beside_the_model(setup), *_as_they_are(setup, of_samples)]
        return cls(file.getvalue(), held_generators(setup), held)

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
        held = {
            name: value
            for name, value in vars(module).items()
            if name not in _OF_EVERY_MODULE and not _holds_parameters_alone(value)
        }
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


def _holds_parameters_alone(value: Any) -> bool:
    """Whether it is a second reference to parameters, such as `_flat_weights` of an LSTM."""
    tensors = [tensor for _, tensor in tensors_in(value)]
    return bool(tensors) and all(isinstance(tensor, nn.Parameter) for tensor in tensors)


def _state_of_samples(setup: TrainingSetup) -> frozenset[UnsavedState]:
    """The attributes of modules that hold rows of the batch's samples, such as the state of a recurrent network.

    They have one row fewer after a pass with one sample fewer. They belong to the samples that were read last: a
    program that resumes begins a new sequence.
    """
    size = batch_size(setup.batch)
    if size is None or size < 2:
        return frozenset()
    shapes = []
    for rows in (size, size - 1):
        batch = with_rows(setup.fresh_batch(), size, lambda _, tensor, rows=rows: tensor[:rows])
        with _from_the_start(setup):
            try:
                setup.loss(batch)
            except Exception:  # the model needs the full batch
                return frozenset()
            shapes.append(_shapes(setup))
    full, fewer = shapes
    return frozenset(state for state, shape in full.items() if _is_one_row_shorter(shape, fewer.get(state), size))


def _shapes(setup: TrainingSetup) -> dict[UnsavedState, list[tuple[int, ...]]]:
    return {
        UnsavedState(path, name, False): [tuple(tensor.shape) for _, tensor in tensors_in(value)]
        for module, path in setup.module_paths.items()
        for name, value in vars(module).items()
        if name not in _OF_EVERY_MODULE
    }


def _is_one_row_shorter(shapes: list[tuple[int, ...]], fewer: list[tuple[int, ...]] | None, size: int) -> bool:
    if not shapes or fewer is None or len(fewer) != len(shapes):
        return False
    return all(
        len(shape) == len(other)
        and [pair for pair in zip(shape, other, strict=True) if pair[0] != pair[1]] == [(size, size - 1)]
        for shape, other in zip(shapes, fewer, strict=True)
    )


def _as_they_are(setup: TrainingSetup, states: Collection[UnsavedState]) -> Iterator[Undo]:
    for module, path in setup.module_paths.items():
        for name, value in list(vars(module).items()):
            if UnsavedState(path, name, False) in states:
                kept = map_tensors(value, lambda _, tensor: tensor.detach().clone())
                yield functools.partial(vars(module).__setitem__, name, kept)


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
