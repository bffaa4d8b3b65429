"""Would this step run on a GPU? The model moves to a second device, real or pretended, and every stray is named."""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from typing import Any

import torch
from torch import nn

from debugkit.experiments import experiment
from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import raising_line
from debugkit.instruments.disposable_child import ChildFailed, in_child
from debugkit.instruments.loss import losses_of
from debugkit.instruments.pretended_device import PretendedDevice, ValueRecorder
from debugkit.observations.second_device import SecondDevice, StrayTensor
from debugkit.probes.stray_tensors import StrayTensorMode, follow_modules
from debugkit.restore import restored, same_randomness
from debugkit.step import one_line, quiet_eager
from debugkit.structure import map_tensors
from debugkit.subject import Subject

_SECONDS = 120.0


@experiment(SecondDevice, cost=3, requires=("batch",))
def move_to_second_device(subject: Subject) -> SecondDevice:
    """Run forward and backward on the accelerator where there is one, on the pretended device otherwise."""
    device = subject.device or (torch.device("cuda") if torch.cuda.is_available() else None)
    if device is not None and device.type == "cuda":
        return _on_a_real_device(subject, device)
    return _on_the_pretended_device(subject)


def _on_the_pretended_device(subject: Subject) -> SecondDevice:
    # Imported here once, not in each child: a second.
    import torch._subclasses.fake_tensor
    import torch.fx.experimental.symbolic_shapes  # noqa: F401

    read = _values_read_on_the_cpu(subject)
    try:
        answer = in_child(lambda: _pretend(subject, read).to_json(), _SECONDS)
    except ChildFailed as why:
        return SecondDevice("pretended", (), forward=False, backward=False, not_examined=str(why))
    strays = tuple(_stray(**stray) for stray in answer.pop("strays"))
    return SecondDevice(**answer, strays=strays)


def _values_read_on_the_cpu(subject: Subject) -> deque[tuple[str, Any]]:
    """What the step reads out of tensors into Python. Raises NotExamined if it fails on the CPU already."""
    recorder = ValueRecorder()
    with restored(subject), quiet_eager(subject.model), recorder:
        try:
            losses = [loss for loss in losses_of(subject) if loss.requires_grad]
            if losses:
                torch.autograd.backward(losses)
        except NotExamined:
            raise
        except Exception as error:
            raise NotExamined(f"The step fails on the CPU already, with {one_line(error)}.") from error
    return recorder.read


def _pretend(subject: Subject, read: deque[tuple[str, Any]]) -> SecondDevice:
    """In the child, where nothing needs to be put back."""
    pretended = PretendedDevice(read)
    strays = StrayTensorMode(pretended.device, pretended.call)
    pretended.take(subject.model, strays.came_from)
    nn.Module.to = lambda self, *_args, **_kwargs: self  # type: ignore[method-assign]
    moved = dataclasses.replace(subject, batch=None)
    batch = pretended.batch(subject.fresh_batch())
    # The engine starts a thread for each device once, before the fork: here the calling thread does it all. Innermost,
    # because quiet_eager's inference_mode(False) turns the threads on again.
    with quiet_eager(subject.model), torch.autograd.set_multithreading_enabled(False), pretended.mode, strays:
        return _run(moved, batch, strays, "pretended")


def _on_a_real_device(subject: Subject, device: torch.device) -> SecondDevice:
    with same_randomness(), quiet_eager(subject.model):
        model = copy.deepcopy(subject.model).to(device)
        moved = dataclasses.replace(subject, model=model, optimizers=())
        batch = map_tensors(subject.fresh_batch(), lambda _, tensor: tensor.to(device))
        with StrayTensorMode(device) as strays:
            for path, module in model.named_modules():
                for name, value in vars(module).items():
                    if isinstance(value, torch.Tensor) and value.device.type != device.type:
                        strays.came_from(value, f"{path}.{name}".lstrip("."))
            return _run(moved, batch, strays, str(device))


def _run(subject: Subject, batch: Any, strays: StrayTensorMode, device: str) -> SecondDevice:
    """One forward and backward; whatever stops it is a sentence."""
    done = {"forward": False, "backward": False}
    why = None
    handles = follow_modules(subject.model, strays.running)
    try:
        losses = [loss for loss in losses_of(subject, batch) if loss.requires_grad]
        done["forward"], strays.phase = True, "backward"
        strays.follow_into_backward(losses)
        if losses:
            torch.autograd.backward(losses)
        done["backward"] = True
    except Exception as error:
        why = _why(error, strays)
    finally:
        for handle in handles:
            handle.remove()
    return SecondDevice(device, tuple(strays.strays), done["forward"], done["backward"], why)


def _why(error: Exception, strays: StrayTensorMode) -> str:
    line = raising_line(error.__traceback__)
    where = f" at {line.file}:{line.line}" if line else ""
    return f"The {strays.phase} ended{where} with {one_line(error)}."


def _stray(**fields: Any) -> StrayTensor:
    for name in ("used", "created"):
        fields[name] = fields[name] and SourceLine(**fields[name])
    fields["shape"] = tuple(fields["shape"])
    return StrayTensor(**fields)
