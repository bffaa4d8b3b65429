"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from debugkit import Declare
from debugkit.measurements.memory_profile.storage_counter import StorageCounter
from labs.vla.dataset import Batch, batches, demonstrations

MIB = 2**20
BUDGET = 12 * MIB
BATCH_SIZE = 64


class Memory(StorageCounter):
    """A simulated machine with `budget` bytes: counts every live storage; beyond, raises torch.OutOfMemoryError."""

    def __init__(self, policy: Any, batch: Batch, budget: float) -> None:
        super().__init__()
        self.budget = budget
        self.reasons: list[str] = []
        self.hold([*policy.parameters(), *policy.buffers(), *batch.values()], "parameters")

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        output = super().__torch_dispatch__(func, types, args, kwargs)
        if self.live > self.budget:
            self.reasons.append(f"{self.live / MIB:.1f} MiB needed, {self.budget / MIB:.1f} MiB available")
            del output  # a failed allocation leaves nothing behind
            raise torch.OutOfMemoryError(self.reasons[-1])
        return output


def step_within(
    learner: Any,
    batch: Batch,
    budget: float,
    seed: int,
    stale: bool = False,
    training: bool = True,
    optimizer_fails: bool = False,
) -> dict[str, Any]:
    """One training step of a newly built policy in `budget` bytes; with `stale`, every gradient is 1 before it.

    `forwards` holds, for each forward pass, its number of frames and the bytes alive before it; `grown` is what the
    first one kept, and `blocky` is whether the images of one had equal neighbours. `left` is the number of bytes that
    the step leaves beyond parameters, gradients and the optimizer's state. `reasons` are the errors of the machine.
    `cache` and `collect` count the calls of torch.cuda.empty_cache and gc.collect. With `optimizer_fails`, the memory
    runs out once in the optimizer's step, after it has updated the weights.
    """
    policy = learner.policy.build_policy(seed).train(training)
    optimizer, memory = learner.policy.build_optimizer(policy), Memory(policy, batch, budget)
    for parameter in policy.parameters():
        parameter.grad = torch.ones_like(parameter) if stale else None
    memory.hold([p.grad for p in policy.parameters() if p.grad is not None], "gradients")
    if optimizer_fails:
        optimizer.register_step_post_hook(_out_of_memory_once())
    before, raised, loss = memory.live, None, None
    with (
        patch.object(torch.cuda, "empty_cache", wraps=torch.cuda.empty_cache) as empty_cache,
        patch.object(gc, "collect", wraps=gc.collect) as collect,
        _Forwards(policy, memory) as forwards,
        memory,
    ):
        try:
            loss = learner.policy.training_step(policy, optimizer, batch)
        except torch.OutOfMemoryError as error:
            raised = str(error)
    gradients = {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}
    states = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    lasting = sum(tensor.nbytes for tensor in (*([] if stale else gradients.values()), *states))
    return {
        "raised": raised,
        "loss": loss,
        "forwards": forwards.seen,
        "grown": forwards.grown,
        "blocky": forwards.blocky,
        "gradients": gradients,
        "weights": {name: p.detach().clone() for name, p in policy.named_parameters()},
        "left": memory.live - before - lasting,
        "optimizer": {"type": type(optimizer).__name__}
        | {name: optimizer.param_groups[0][name] for name in ("lr", "betas", "weight_decay")},
        "reasons": memory.reasons,
        "cache": empty_cache.call_count,
        "collect": collect.call_count,
    }


def other_error(learner: Any, batch: Batch, seed: int) -> str:
    """What training_step raises if the policy raises a RuntimeError: its type and text."""
    policy = learner.policy.build_policy(seed)

    def fail(*_: Any) -> None:
        raise RuntimeError("no camera 3")

    policy.register_forward_pre_hook(fail)
    try:
        learner.policy.training_step(policy, learner.policy.build_optimizer(policy), batch)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def parameters(learner: Any) -> dict[str, list[int]]:
    """Names and shapes of the policy's trained parameters."""
    return {name: list(p.shape) for name, p in learner.policy.build_policy(0).named_parameters() if p.requires_grad}


def action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The chunk that a newly built policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def losses_within(learner: Any, seed: int, steps: int, budget: float | None, batch_size: int) -> list[float]:
    """Losses of a short training in `budget` bytes, or without a budget; ends when a step runs out of memory."""
    policy = learner.policy.build_policy(seed)
    optimizer, losses = learner.policy.build_optimizer(policy), []
    for batch in batches(demonstrations(steps * batch_size, seed), batch_size, steps, seed):
        try:
            if budget is None:
                losses.append(learner.policy.training_step(policy, optimizer, batch))
                continue
            with Memory(policy, batch, budget) as memory:
                memory.hold([p.grad for p in policy.parameters() if p.grad is not None], "gradients")
                losses.append(learner.policy.training_step(policy, optimizer, batch))
        except torch.OutOfMemoryError:
            break
    return losses


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: the policy, and a batch of the size that ran in the end, or the whole batch."""
    policy, batch = learner.policy.build_policy(0), _batch()
    memory = Memory(policy, batch, BUDGET)
    largest = BATCH_SIZE
    with _Forwards(policy, memory) as forwards, memory:
        try:
            learner.policy.training_step(policy, learner.policy.build_optimizer(policy), batch)
            largest = forwards.seen[-1][0]
        except torch.OutOfMemoryError:
            pass
    fresh = learner.policy.build_policy(0)
    return {
        "model": fresh,
        "batch": {name: values[:largest] for name, values in batch.items()},
        "optimizer": learner.policy.build_optimizer(fresh),
        "declare": Declare(memory_budget=BUDGET),
    }


def symptom(learner: Any) -> None:
    """One step in 12 MiB, and one with a quarter of the batch: what `lab run 63` shows."""
    batch = _batch()
    print(f"A machine with {BUDGET / MIB:.0f} MiB, and one training step of {BATCH_SIZE} frames\n")
    _tell(learner, batch)
    print(f"\nThe same machine, restarted, and one training step of {BATCH_SIZE // 4} frames\n")
    _tell(learner, {name: values[: BATCH_SIZE // 4] for name, values in batch.items()})


def _out_of_memory_once() -> Callable[..., None]:
    """A hook that raises torch.OutOfMemoryError the first time that it is called."""
    reasons = ["no memory for the optimizer's state"]

    def fail(*_: Any) -> None:
        if reasons:
            raise torch.OutOfMemoryError(reasons.pop())

    return fail


def _tell(learner: Any, batch: Batch) -> None:
    policy = learner.policy.build_policy(0)
    memory = Memory(policy, batch, BUDGET)
    with _Forwards(policy, memory) as forwards, memory:
        try:
            loss = learner.policy.training_step(policy, learner.policy.build_optimizer(policy), batch)
        except torch.OutOfMemoryError as error:
            print(f"  torch.OutOfMemoryError: {error}")
            return
    sizes = [frames for frames, _ in forwards.seen]
    last = sizes.count(sizes[-1])
    print(f"  one update in {last} micro-batch{'es' * (last > 1)} of {sizes[-1]} frames; loss {loss:.4f}")


def _batch() -> Batch:
    return next(batches(demonstrations(BATCH_SIZE, seed=63), BATCH_SIZE, steps=1, seed=63))


class _Forwards:
    """Records the number of frames of each forward pass of the policy, the bytes alive before it, and its images."""

    def __init__(self, policy: Any, memory: Memory) -> None:
        self.policy, self.memory = policy, memory
        self.seen: list[tuple[int, int]] = []
        self.grown: int | None = None
        self.blocky = False

    def __enter__(self) -> _Forwards:
        self._handles = [
            self.policy.register_forward_pre_hook(self._before, with_kwargs=True),
            self.policy.register_forward_hook(self._after),
        ]
        return self

    def _before(self, _module: Any, _args: Any, given: dict[str, Tensor]) -> None:
        self.seen.append((len(given["state"]), self.memory.live))
        images = given["pixel_values"].detach().numpy()  # numpy's own arrays are not counted
        self.blocky |= bool((images[..., ::2] == images[..., 1::2]).all())

    def _after(self, *_: Any) -> None:
        if self.grown is None:
            self.grown = self.memory.live - self.seen[-1][1]

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
