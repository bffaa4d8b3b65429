"""find_batch_size: the largest batch that fits, by prediction against a budget or by trying on the GPU."""

from __future__ import annotations

import contextlib
import copy
import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from debugkit.finding import NotExamined
from debugkit.interventions.losses import losses_of
from debugkit.measurements.memory_profile import BatchSizeSearch, BatchSizeTried
from debugkit.measurements.memory_profile.measure import memory_profile
from debugkit.randomness import same_randomness
from debugkit.setup import LossFn, TrainingSetup
from debugkit.step import quiet_eager

__all__ = ["BatchSizeSearch", "BatchSizeTried", "find_batch_size"]


def find_batch_size(
    make_batch: Callable[[int], Any],
    model: nn.Module,
    loss_fn: LossFn | None = None,
    *,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    budget_bytes: int | None = None,
    start: int = 8,
    largest: int = 65_536,
) -> BatchSizeSearch:
    """Find the largest batch size, in samples, whose training step fits in memory.

    `make_batch(size)` returns a batch of `size` samples. With `budget_bytes` the peak of each size is predicted by
    `memory_profile`, without a GPU. Without it, real steps run on the model's device until one is out of memory, and
    what they leave is freed. The search starts at `start`, halves until a size fits, doubles until one does not or
    `largest` is reached, and bisects between. Weights, optimizer state and random number generators are restored.

    Raises NotExamined if not even one sample fits, or if no budget is given for a model on the CPU (a process that runs
    out of main memory is ended by the system). Raises ValueError unless 1 ≤ start ≤ largest.

    >>> model = nn.Linear(1024, 1024)
    >>> found = find_batch_size(lambda n: torch.ones(n, 1024), model, lambda m, x: m(x).sum(), budget_bytes=10 * 2**20)
    >>> found.batch_size, found.tried[0].batch_size, found.tried[0].fits
    (509, 8, True)
    """
    if start < 1 or largest < start:
        raise ValueError(f"1 ≤ start ≤ largest is needed, but start={start} and largest={largest}.")
    if budget_bytes is None and next((p.device.type for p in model.parameters()), "cpu") == "cpu":
        raise NotExamined("The model is on the CPU: give budget_bytes=, or move it to the GPU whose memory to fill.")
    if budget_bytes is not None:

        def attempt(size: int) -> BatchSizeTried:
            peak = memory_profile(model, make_batch(size), loss_fn, optimizer=optimizer).peak.bytes
            return BatchSizeTried(size, peak <= budget_bytes, peak)
    else:

        def attempt(size: int) -> BatchSizeTried:
            return run_until_out_of_memory(TrainingSetup.of(model, make_batch(size), loss_fn, optimizer), size)

    return search(attempt, start, largest, budget_bytes)


def search(
    attempt: Callable[[int], BatchSizeTried], start: int, largest: int, budget_bytes: int | None
) -> BatchSizeSearch:
    """Halve until a size fits, double until one does not, bisect between. Raises NotExamined if 1 does not fit."""
    tried: list[BatchSizeTried] = []

    def fits(size: int) -> bool:
        tried.append(attempt(size))
        return tried[-1].fits

    good, bad = start, None
    while not fits(good):
        if good == 1:
            peak = tried[-1].peak_bytes
            need = "" if peak is None else f" It needs {peak:,} bytes and the budget is {budget_bytes:,}."
            raise NotExamined(f"Not even one sample fits.{need}")
        good, bad = good // 2, good
    while bad is None and good < largest:
        size = min(2 * good, largest)
        if fits(size):
            good = size
        else:
            bad = size
    while bad is not None and bad - good > 1:
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return BatchSizeSearch(good, budget_bytes, tuple(tried))


def run_until_out_of_memory(setup: TrainingSetup, size: int) -> BatchSizeTried:
    """Two real training steps (the first makes the optimizer's state), and everything they leave is freed."""
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    fits = True
    with _put_back_from_the_cpu(setup), quiet_eager(setup.model):
        try:
            for _ in range(2):
                torch.autograd.backward(losses_of(setup))
                for optimizer in setup.optimizers:
                    optimizer.step()
                setup.model.zero_grad(set_to_none=True)
        except torch.OutOfMemoryError:  # not kept: its traceback's frames hold the activations that did fit
            fits = False
    peak = torch.cuda.max_memory_allocated() if cuda and fits else None
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
    return BatchSizeTried(size, fits, peak)


@contextlib.contextmanager
def _put_back_from_the_cpu(setup: TrainingSetup) -> Iterator[None]:
    """As `preserved`, with the copies kept off the device whose memory is being measured."""
    model = setup.model
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}.values()
    values = [(tensor, tensor.detach().to("cpu", copy=True)) for tensor in tensors]
    gradients = [(p, p.grad) for p in model.parameters()]
    states = [(o, _on_the_cpu(o.state_dict())) for o in setup.optimizers]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        with same_randomness():
            yield
    finally:
        for tensor, value in values:
            tensor.data.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for optimizer, state in states:
            optimizer.load_state_dict(state)


def _on_the_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _on_the_cpu(item) for key, item in value.items()}
    return [_on_the_cpu(item) for item in value] if isinstance(value, list) else copy.copy(value)
