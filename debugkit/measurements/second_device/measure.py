"""Runs the step on a second device, real or simulated, and names every tensor that was left on the CPU."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from debugkit._torch_private import (
    buffers_of,
    fake_tensor_type,
    is_lost_by_a_fork,
    operation_that_needs_values,
    parameters_of,
)
from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import one_line, raising_line
from debugkit.held_values import held_modules
from debugkit.interventions.losses import losses_of
from debugkit.measurements.second_device import SecondDevice, StrayTensor
from debugkit.measurements.second_device.disposable_child import ChildFailed, in_child
from debugkit.measurements.second_device.pretended_device import PretendedDevice, ValueRecorder
from debugkit.measurements.second_device.stray_tensors import StrayTensorMode
from debugkit.plain_data import at_line
from debugkit.preserve_state import preserved
from debugkit.randomness import same_randomness
from debugkit.recorders.module_calls import follow_modules
from debugkit.setup import TrainingSetup
from debugkit.step import quiet_eager
from debugkit.structure import map_tensors

_SECONDS = 120.0


def move_to_second_device(setup: TrainingSetup) -> SecondDevice:
    """Run forward and backward on the accelerator if there is one, otherwise on the simulated device."""
    device = setup.device or torch.device("cuda")
    if device.type == "cuda" and torch.cuda.is_available():
        return _on_a_real_device(setup, device)
    return dataclasses.replace(_on_the_pretended_device(setup), declared=setup.device is not None)


def _on_the_pretended_device(setup: TrainingSetup) -> SecondDevice:
    try:
        fake_tensor_type()  # imported once in the parent and not in each child, because it takes a second
    except RuntimeError as why:
        return SecondDevice("pretended", (), forward=False, backward=False, not_examined=f"{why}.")
    import torch.fx.experimental.symbolic_shapes  # noqa: F401

    read = _values_read_on_the_cpu(setup)
    try:
        answer = in_child(lambda: _pretend(setup, read).to_json(), _SECONDS)
    except ChildFailed as why:
        return SecondDevice("pretended", (), forward=False, backward=False, not_examined=str(why))
    strays = tuple(_stray(**stray) for stray in answer.pop("strays"))
    placed = answer.pop("placed")
    return SecondDevice(**answer, strays=strays, placed=placed and SourceLine(**placed))


def _values_read_on_the_cpu(setup: TrainingSetup) -> deque[tuple[str, Any]]:
    """The values that the step reads from tensors into Python. Raises NotExamined if the step fails on the CPU."""
    recorder = ValueRecorder()
    with preserved(setup), quiet_eager(setup.model), recorder:
        try:
            losses = [loss for loss in losses_of(setup) if loss.requires_grad]
            if losses:
                torch.autograd.backward(losses)
        except NotExamined:
            raise
        except Exception as error:
            raise NotExamined(f"The step fails on the CPU already, with {one_line(error)}.") from error
    return recorder.read


def _pretend(setup: TrainingSetup, read: deque[tuple[str, Any]]) -> SecondDevice:
    """The run in the child, where nothing needs to be restored."""
    pretended = PretendedDevice(read)
    strays = StrayTensorMode(pretended.device, pretended.call)
    pretended.move(setup.model, strays.set_attribute)
    for name, module in others_held_by_the_loss(setup).items():
        pretended.move(module, lambda tensor, path, name=name: strays.set_attribute(tensor, f"{name}.{path}"))  # type: ignore[misc]
    nn.Module.to = lambda self, *_args, **_kwargs: self  # type: ignore[method-assign]
    moved = dataclasses.replace(setup, batch=None)
    batch = pretended.batch(setup.fresh_batch())
    # The autograd engine started its device threads before the fork, so here the calling thread does all the work. This
    # must be innermost, because quiet_eager's inference_mode(False) enables the threads again.
    with quiet_eager(setup.model), torch.autograd.set_multithreading_enabled(False), pretended.mode, strays:
        return _run(moved, batch, strays, "pretended")


def _on_a_real_device(setup: TrainingSetup, device: torch.device) -> SecondDevice:
    with same_randomness(), quiet_eager(setup.model):
        model = copy.deepcopy(setup.model).to(device)
        moved = dataclasses.replace(setup, model=model, optimizers=())
        batch = map_tensors(setup.fresh_batch(), lambda _, tensor: tensor.to(device))
        with _moved_for_a_while(others_held_by_the_loss(setup).values(), device), StrayTensorMode(device) as strays:
            for path, module in model.named_modules():
                for name, value in vars(module).items():
                    if isinstance(value, torch.Tensor) and value.device.type != device.type:
                        strays.set_attribute(value, f"{path}.{name}".lstrip("."))
            return dataclasses.replace(_run(moved, batch, strays, str(device)), real=True)


def others_held_by_the_loss(setup: TrainingSetup) -> dict[str, nn.Module]:
    """The modules that the loss function holds beside the model (a teacher, a criterion), which a program moves too."""
    own = set(setup.model.modules())
    held = {name: module for name, module in held_modules(setup.loss_fn).items() if module not in own}
    parts = {id(part) for module in held.values() for part in module.modules() if part is not module}
    return {
        name: module for name, module in held.items() if id(module) not in parts and not own & set(module.modules())
    }


@contextlib.contextmanager
def _moved_for_a_while(modules: Iterable[nn.Module], device: torch.device) -> Iterator[None]:
    """Parameters and buffers on the device inside the block, and the originals after it."""
    parts = [part for module in modules for part in module.modules()]
    tables: list[Any] = [table for part in parts for table in (parameters_of(part), buffers_of(part))]
    originals = [dict(table) for table in tables]
    try:
        for table in tables:
            for name, tensor in list(table.items()):
                if isinstance(tensor, nn.Parameter):
                    table[name] = nn.Parameter(tensor.detach().to(device), tensor.requires_grad)
                elif tensor is not None:
                    table[name] = tensor.detach().to(device)
        yield
    finally:
        for table, original in zip(tables, originals, strict=True):
            table.update(original)


def _run(setup: TrainingSetup, batch: Any, strays: StrayTensorMode, device: str) -> SecondDevice:
    """Run one forward and one backward. An exception becomes the sentence in `not_examined`."""
    done = {"forward": False, "backward": False}
    why = None
    try:
        with follow_modules(setup.model, strays.running):
            losses = [loss for loss in losses_of(setup, batch) if loss.requires_grad]
            done["forward"], strays.phase = True, "backward"
            strays.follow_into_backward(losses)
            if losses:
                torch.autograd.backward(losses)
            done["backward"] = True
    except Exception as error:
        why = _why(error, strays)
    return SecondDevice(device, tuple(strays.strays), done["forward"], done["backward"], why, placed=strays.placed)


def _why(error: Exception, strays: StrayTensorMode) -> str:
    if is_lost_by_a_fork(error):
        return (
            "The backward was not simulated: it runs in a fork of this process, whose first backward came after "
            "torch.compile or a FakeTensorMode and started threads. Run a backward before them."
        )
    line = raising_line(error.__traceback__)
    where = at_line(line)
    operation = operation_that_needs_values(error)
    if operation is not None:
        return f"The {strays.phase} ended{where} in {operation}, which needs values; a simulated device has none."
    return f"The {strays.phase} ended{where} with {one_line(error)}."


def _stray(**fields: Any) -> StrayTensor:
    for name in ("used", "created"):
        fields[name] = fields[name] and SourceLine(**fields[name])
    fields["shape"] = tuple(fields["shape"])
    return StrayTensor(**fields)
