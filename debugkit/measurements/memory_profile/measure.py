"""memory_profile: how many bytes a training step needs, by purpose, without a GPU."""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from debugkit._torch_private import FAKE_TENSOR_LOGGER, buffers_of, fake_tensor_mode, parameters_of
from debugkit.interventions.losses import losses_of
from debugkit.measurements.memory_profile import MemoryProfile, ModuleBytes
from debugkit.measurements.memory_profile.storage_counter import StorageCounter
from debugkit.preserve_state import preserved
from debugkit.randomness import same_randomness
from debugkit.recorders.module_calls import follow_modules
from debugkit.setup import LossFn, TrainingSetup
from debugkit.step import quiet_eager
from debugkit.structure import map_tensors, tensors_in


def memory_profile(
    model: nn.Module,
    batch: Any,
    loss_fn: LossFn | None = None,
    *,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
) -> MemoryProfile:
    """Predict the peak memory of a training step, in bytes, and what it consists of.

    Two steps run, since the first makes the optimizer's state and the second already holds it. They run on tensors that
    have shapes and no memory, so the model may be too large for this machine. If the code reads values (`.item()`,
    `if mask.any()`), they run on the real tensors instead, and everything is restored. The kernels are those of the
    CPU: the figure does not include a GPU's allocator and workspaces, nor what its fused attention saves.

    Raises NotExamined if there is no scalar loss.

    >>> model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    >>> profile = memory_profile(model, torch.ones(64, 256), lambda model, batch: model(batch).mean())
    >>> profile.parameters, profile.parameters == profile.gradients, profile.activations
    (264196, True, 65540)
    """
    setup = TrainingSetup.of(model, batch, loss_fn, optimizer)
    with quiet_eager(model):
        try:
            with same_randomness(), _silent_fakes(), _without_memory(setup) as (fake, batch_of_fakes):
                return _profile(fake, batch_of_fakes, fake_tensors=True)
        except Exception:  # a value is needed or an operation has no shape rule; an error in the code is raised again
            with preserved(setup):
                return _profile(setup, setup.fresh_batch(), fake_tensors=False)


def _profile(setup: TrainingSetup, batch: Any, fake_tensors: bool) -> MemoryProfile:
    model, counter = setup.model, StorageCounter()
    counter.hold(model.parameters(), "parameters")
    counter.hold(model.buffers(), "buffers")
    counter.hold((tensor for _, tensor in tensors_in(batch)), "batch")
    for optimizer in setup.optimizers:
        counter.hold(_state(optimizer), "optimizer")
    handles = [
        _when_accumulated(p, lambda p: counter.hold(_gradients([p]), "gradients"))
        for p in model.parameters()
        if p.requires_grad
    ]
    try:
        with follow_modules(model, counter.running), counter:
            _step(setup, batch, counter)
            return _second_step(setup, batch, counter, fake_tensors)
    finally:
        for handle in handles:
            handle.remove()


def _when_accumulated(parameter: nn.Parameter, hook: Callable[[Tensor], None]) -> Any:
    return parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]


def _step(setup: TrainingSetup, batch: Any, counter: StorageCounter) -> None:
    losses = _forward(setup, batch, counter)
    _backward(losses, counter)
    losses.clear()
    _optimize(setup, counter)


def _second_step(setup: TrainingSetup, batch: Any, counter: StorageCounter, fake_tensors: bool) -> MemoryProfile:
    losses = _forward(setup, batch, counter)
    after_forward, kept, by_module = counter.live, counter.bytes_for("activations"), counter.by_module("activations")
    _backward(losses, counter)
    losses.clear()
    after_backward, gradients = counter.live, counter.bytes_for("gradients")
    _optimize(setup, counter)
    assert counter.peak is not None  # operations ran, or there would be no loss
    return MemoryProfile(
        peak=counter.peak,
        parameters=counter.bytes_for("parameters"),
        buffers=counter.bytes_for("buffers"),
        batch=counter.bytes_for("batch"),
        gradients=gradients,
        optimizer_state=sum({id(t): t.nbytes for o in setup.optimizers for t in _state(o)}.values()),
        activations=kept,
        by_module=tuple(ModuleBytes(module, size) for module, size in by_module.items()),
        after_forward=after_forward,
        after_backward=after_backward,
        after_step=counter.live,
        fake_tensors=fake_tensors,
    )


def _forward(setup: TrainingSetup, batch: Any, counter: StorageCounter) -> list[Tensor]:
    counter.phase = "forward"
    return losses_of(setup, map_tensors(batch, lambda _, tensor: tensor))


def _backward(losses: list[Tensor], counter: StorageCounter) -> None:
    counter.phase = "backward"
    if grad := [loss for loss in losses if loss.requires_grad]:
        torch.autograd.backward(grad)


def _optimize(setup: TrainingSetup, counter: StorageCounter) -> None:
    counter.phase = "optimizer"
    for optimizer in setup.optimizers:
        optimizer.step()
    for parameter in setup.model.parameters():
        parameter.grad = None


def _gradients(parameters: list[Tensor]) -> list[Tensor]:
    return [p.grad for p in parameters if p.grad is not None]


def _state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [tensor for entries in optimizer.state.values() for _, tensor in tensors_in(entries)]


@contextlib.contextmanager
def _without_memory(setup: TrainingSetup) -> Iterator[tuple[TrainingSetup, Any]]:
    """The setup on fake tensors. The model's own tensors are set aside and restored unchanged."""
    mode = fake_tensor_mode(allow_non_fake_inputs=True)
    fakes: dict[int, Tensor] = {}
    kept = [(module, dict(parameters_of(module)), dict(buffers_of(module))) for module in setup.model.modules()]
    plain = [(module, dict(module.__dict__)) for module in setup.model.modules()]
    try:
        for module, parameters, buffers in kept:
            for name, p in parameters.items():
                if p is not None and id(p) not in fakes:
                    fakes[id(p)] = nn.Parameter(mode.from_tensor(p.detach()), requires_grad=p.requires_grad)
                parameters_of(module)[name] = None if p is None else fakes[id(p)]  # type: ignore[assignment]
            for name, b in buffers.items():
                if b is not None and id(b) not in fakes:
                    fakes[id(b)] = mode.from_tensor(b.detach())
                buffers_of(module)[name] = None if b is None else fakes[id(b)]
        batch = map_tensors(
            setup.fresh_batch(), lambda _, t: mode.from_tensor(t.detach()).requires_grad_(t.requires_grad)
        )
        optimizers = tuple(_rebuilt(optimizer, fakes) for optimizer in setup.optimizers)
        with mode:
            yield TrainingSetup(setup.model, None, setup.loss_fn, optimizers), batch
    finally:
        for module, attributes in plain:
            for name in [name for name in module.__dict__ if name not in attributes]:
                del module.__dict__[name]
            module.__dict__.update(attributes)
        for module, parameters, buffers in kept:
            parameters_of(module).update(parameters)
            buffers_of(module).update(buffers)


def _rebuilt(optimizer: torch.optim.Optimizer, fakes: dict[int, Tensor]) -> torch.optim.Optimizer:
    """The same optimizer with the same groups of fake parameters, before its first step."""
    groups = [{**group, "params": [fakes[id(p)] for p in group["params"]]} for group in optimizer.param_groups]
    made = type(optimizer).__new__(type(optimizer))
    made.__setstate__({**optimizer.__getstate__(), "state": defaultdict(dict), "param_groups": []})
    for group in groups:
        made.add_param_group(group)
    return made


@contextlib.contextmanager
def _silent_fakes() -> Iterator[None]:
    """Disable the log of fake tensors, which reports every unsupported operation. The real run raises a clear error."""
    logger = logging.getLogger(FAKE_TENSOR_LOGGER)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
