"""memory_profile: how many bytes a training step needs, by what they are for, before there is a GPU to fill."""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from debugkit.instruments.loss import losses_of
from debugkit.observations.storage import MemoryProfile, ModuleBytes
from debugkit.probes.storage import StorageCounter
from debugkit.probes.stray_tensors import follow_modules
from debugkit.restore import restored, same_randomness
from debugkit.step import quiet_eager
from debugkit.structure import map_tensors, tensors_in
from debugkit.subject import LossFn, Subject


def memory_profile(
    model: nn.Module,
    batch: Any,
    loss_fn: LossFn | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
) -> MemoryProfile:
    """Predict the peak memory of a training step and say what it consists of.

    Two steps are run, since the first one makes the optimizer's state and the second already holds it. They run on
    tensors that have shapes and no memory, so a model too large for this machine can be asked about; where the code
    reads values (`.item()`, `if mask.any()`) they run for real instead and everything is put back. The kernels are
    the CPU's: what a GPU's allocator, its workspaces or its fused attention change is not in the figure.

    Raises NotExamined if no scalar loss comes back.

    >>> model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    >>> profile = memory_profile(model, torch.ones(64, 256), lambda model, batch: model(batch).mean())
    >>> profile.parameters, profile.parameters == profile.gradients, profile.activations
    (264196, True, 65540)
    """
    subject = Subject.of(model, batch, loss_fn, optimizer)
    with quiet_eager(model):
        try:
            with same_randomness(), _silent_fakes(), _without_memory(subject) as (fake, batch_of_fakes):
                return _profile(fake, batch_of_fakes, fake_tensors=True)
        except Exception:  # a value is needed, an operation has no shape rule; a fault of the code itself comes again
            with restored(subject):
                return _profile(subject, subject.fresh_batch(), fake_tensors=False)


def _profile(subject: Subject, batch: Any, fake_tensors: bool) -> MemoryProfile:
    model, counter = subject.model, StorageCounter()
    counter.hold(model.parameters(), "parameters")
    counter.hold(model.buffers(), "buffers")
    counter.hold((tensor for _, tensor in tensors_in(batch)), "batch")
    for optimizer in subject.optimizers:
        counter.hold(_state(optimizer), "optimizer")
    handles: list[Any] = follow_modules(model, counter.running)
    handles += [
        _when_accumulated(p, lambda p: counter.hold(_gradients([p]), "gradients"))
        for p in model.parameters()
        if p.requires_grad
    ]
    try:
        with counter:
            _step(subject, batch, counter)
            return _second_step(subject, batch, counter, fake_tensors)
    finally:
        for handle in handles:
            handle.remove()


def _when_accumulated(parameter: nn.Parameter, hook: Callable[[Tensor], None]) -> Any:
    return parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]


def _step(subject: Subject, batch: Any, counter: StorageCounter) -> None:
    losses = _forward(subject, batch, counter)
    _backward(losses, counter)
    losses.clear()
    _optimize(subject, counter)


def _second_step(subject: Subject, batch: Any, counter: StorageCounter, fake_tensors: bool) -> MemoryProfile:
    losses = _forward(subject, batch, counter)
    after_forward, kept, by_module = counter.live, counter.bytes_for("activations"), counter.by_module("activations")
    _backward(losses, counter)
    losses.clear()
    after_backward, gradients = counter.live, counter.bytes_for("gradients")
    _optimize(subject, counter)
    assert counter.peak is not None  # operations ran, or there would be no loss
    return MemoryProfile(
        peak=counter.peak,
        parameters=counter.bytes_for("parameters"),
        buffers=counter.bytes_for("buffers"),
        batch=counter.bytes_for("batch"),
        gradients=gradients,
        optimizer_state=sum({id(t): t.nbytes for o in subject.optimizers for t in _state(o)}.values()),
        activations=kept,
        by_module=tuple(ModuleBytes(module, size) for module, size in by_module.items()),
        after_forward=after_forward,
        after_backward=after_backward,
        after_step=counter.live,
        fake_tensors=fake_tensors,
    )


def _forward(subject: Subject, batch: Any, counter: StorageCounter) -> list[Tensor]:
    counter.phase = "forward"
    return losses_of(subject, map_tensors(batch, lambda _, tensor: tensor))


def _backward(losses: list[Tensor], counter: StorageCounter) -> None:
    counter.phase = "backward"
    if grad := [loss for loss in losses if loss.requires_grad]:
        torch.autograd.backward(grad)


def _optimize(subject: Subject, counter: StorageCounter) -> None:
    counter.phase = "optimizer"
    for optimizer in subject.optimizers:
        optimizer.step()
    for parameter in subject.model.parameters():
        parameter.grad = None


def _gradients(parameters: list[Tensor]) -> list[Tensor]:
    return [p.grad for p in parameters if p.grad is not None]


def _state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [tensor for entries in optimizer.state.values() for _, tensor in tensors_in(entries)]


@contextlib.contextmanager
def _without_memory(subject: Subject) -> Iterator[tuple[Subject, Any]]:
    """The subject on fake tensors: the model's own are put aside and come back untouched."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes: dict[int, Tensor] = {}
    kept = [(module, dict(module._parameters), dict(module._buffers)) for module in subject.model.modules()]
    plain = [(module, dict(module.__dict__)) for module in subject.model.modules()]
    try:
        for module, parameters, buffers in kept:
            for name, p in parameters.items():
                if p is not None and id(p) not in fakes:
                    fakes[id(p)] = nn.Parameter(mode.from_tensor(p.detach()), requires_grad=p.requires_grad)
                module._parameters[name] = None if p is None else fakes[id(p)]  # type: ignore[assignment]
            for name, b in buffers.items():
                if b is not None and id(b) not in fakes:
                    fakes[id(b)] = mode.from_tensor(b.detach())
                module._buffers[name] = None if b is None else fakes[id(b)]
        batch = map_tensors(
            subject.fresh_batch(), lambda _, t: mode.from_tensor(t.detach()).requires_grad_(t.requires_grad)
        )
        optimizers = tuple(_rebuilt(optimizer, fakes) for optimizer in subject.optimizers)
        with mode:
            yield Subject(subject.model, None, subject.loss_fn, optimizers), batch
    finally:
        for module, attributes in plain:
            for name in [name for name in module.__dict__ if name not in attributes]:
                del module.__dict__[name]
            module.__dict__.update(attributes)
        for module, parameters, buffers in kept:
            module._parameters.update(parameters)
            module._buffers.update(buffers)


def _rebuilt(optimizer: torch.optim.Optimizer, fakes: dict[int, Tensor]) -> torch.optim.Optimizer:
    """The same optimizer with the same groups over the fake parameters, before its first step."""
    groups = [{**group, "params": [fakes[id(p)] for p in group["params"]]} for group in optimizer.param_groups]
    made = type(optimizer).__new__(type(optimizer))
    made.__setstate__({**optimizer.__getstate__(), "state": defaultdict(dict), "param_groups": []})
    for group in groups:
        made.add_param_group(group)
    return made


@contextlib.contextmanager
def _silent_fakes() -> Iterator[None]:
    """A fake tensor logs whatever it refuses; the real run says it better."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
