"""Measures the learner's trainer for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import OBSERVATION_KEYS, Policy

SEED, BATCH_SIZE, STEPS = 28, 16, 40
METRES = (1.0, 1.0, 0.04)


def gradients(
    learner: Any, stream: list[dict[str, Tensor]], seed: int, frozen: str = "", frozen_later: str = ""
) -> list[dict[str, Any]]:
    """Loss and gradients of one trainer's `backward` on each batch in turn, without a step in between.

    The part `frozen` is frozen from the beginning, `frozen_later` in both policies after the first batch.
    """
    trainer = _trainer(learner, seed, frozen)
    found = []
    for number, batch in enumerate(stream):
        if number == 1 and frozen_later:
            for policy in (trainer.master, trainer.half):
                policy.get_submodule(frozen_later).requires_grad_(False)
        loss = trainer.backward(*_split(batch))
        found.append({"loss": float(loss), "gradient": _gradients(trainer.master)})
    return found


def repeated(learner: Any, batch: dict[str, Tensor], seed: int, trained: str, times: int) -> list[dict[str, Tensor]]:
    """The gradients after each of so many calls of `backward` on one batch, with all but the part `trained` frozen."""
    policy = Policy.from_base(seed=seed).requires_grad_(False)
    policy.get_submodule(trained).requires_grad_(True)
    trainer = learner.policy.HalfPrecisionTrainer(policy)
    found = []
    for _ in range(times):
        trainer.backward(*_split(batch))
        found.append(_gradients(trainer.master))
    return found


def loss_alone(learner: Any, batch: dict[str, Tensor], seed: int) -> float:
    """What `weighted_loss` returns for the float16 policy."""
    inputs, frame_weight = _split({**batch, "pixel_values": batch["pixel_values"].half()})
    with torch.no_grad():
        return float(learner.policy.weighted_loss(_trainer(learner, seed).half, inputs, frame_weight))


def scaling(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """The factor on the loss before the backward pass, and the factors on float16 gradients after it."""
    trainer = _trainer(learner, seed)
    with _backward_calls() as calls:
        trainer.backward(*_split(batch))
    with _Multiplications() as seen:
        trainer.backward(*_split(batch))
    policy, (inputs, frame_weight) = Policy.from_base(seed=seed), _split(batch)
    with torch.no_grad():
        loss = float(_loss(policy, inputs, frame_weight))
    return {"scale": float(calls[-1]) / loss, "after_backward": seen.factors}


def dtypes(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, dict[str, str]]:
    """For each layer that ran, its `mode` and the dtypes of its outputs, `forward`, and their gradients, `backward`.

    For the vision tower it is the dtype of its `images`.
    """
    trainer = _trainer(learner, seed)
    ran: dict[str, dict[str, str]] = {}
    for policy in (trainer.master, trainer.half):
        policy.vision.register_forward_pre_hook(
            lambda _, __, given: ran.update(vision={"images": _name(given["pixel_values"])}), with_kwargs=True
        )
        for name, module in policy.named_modules():
            if list(module.parameters(recurse=False)):
                module.register_forward_hook(_note_dtypes(ran, name))
    trainer.backward(*_split(batch))
    return ran


def steps(learner: Any, stream: list[dict[str, Tensor]], seed: int) -> list[dict[str, Any]]:
    """For each step: the gradients with which the optimizer was called, and afterwards master and float16 policy."""
    trainer = _trainer(learner, seed)
    given: list[dict[str, Tensor]] = []
    trainer.optimizer.register_step_pre_hook(lambda *_: given.append(_gradients(trainer.master)))
    found = []
    for batch in stream:
        given.clear()
        trainer.step(*_split(batch))
        found.append({"gradients": [*given], "master": _weights(trainer.master), "half": _weights(trainer.half)})
    return found


def optimized(learner: Any, gradients: list[dict[str, Tensor]], seed: int) -> dict[str, Any]:
    """The master's weights after one step of the trainer's optimizer for each set of gradients."""
    trainer = _trainer(learner, seed)
    rate = float(trainer.optimizer.param_groups[0]["lr"])
    for given in gradients:
        for name, parameter in trainer.master.named_parameters():
            parameter.grad = given[name].clone()
        trainer.optimizer.step()
    return {"learning_rate": rate, "after": _weights(trainer.master)}


def trained_on(learner: Any, stream: list[dict[str, Tensor]], seed: int) -> dict[str, Any]:
    """What `train` returns, the policy's mode after it, and the chunk that it predicts for the first batch."""
    policy = Policy.from_base(seed=seed)
    losses = learner.policy.train(policy, iter(stream))
    return {
        "losses": [float(loss) for loss in losses],
        "training": policy.training,
        "action": policy.predict(stream[0]),
    }


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a policy predicts after one training step on `batch`, (B, H, 3)."""
    policy = Policy.from_base(seed=seed)
    learner.policy.train(policy, [batch])
    return policy.eval().predict(batch)


def trained(learner: Any, seed: int) -> dict[str, Any]:
    """The loss after training repeatedly on one batch, as a share of the loss before, both computed in float32."""
    policy, batch = Policy.from_base(seed=seed), _batch(seed)
    alike = torch.ones(BATCH_SIZE)
    before = _loss(policy, batch, alike).item()
    learner.policy.train(policy, [batch] * STEPS)
    return {"left": _loss(policy, batch, alike).item() / before}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: the float16 policy, and the loss on which the trainer calls `backward`."""
    trainer = _trainer(learner, SEED)
    weight = learner.policy.frame_weights(torch.ones(BATCH_SIZE))

    def loss_for_backward(_half: Policy, batch: dict[str, Tensor]) -> Tensor:
        with _backward_calls() as calls:
            trainer.backward(batch, batch["frame_weight"])
        return calls[0]

    batch = {**_batch(SEED), "frame_weight": weight}
    # A budget above the default: scaling the loss up is one of the more expensive experiments.
    return {"model": trainer.half, "batch": batch, "loss_fn": loss_for_backward, "budget": 80}


def symptom(learner: Any) -> None:
    """Trains on one batch and prints the size of the gradients: the output of `lab run 28`."""
    policy, batch = Policy.from_base(seed=SEED), _batch(SEED)
    before = {name: value.detach().clone() for name, value in policy.named_parameters()}
    trainer = learner.policy.HalfPrecisionTrainer(policy)
    weight = learner.policy.frame_weights(torch.ones(BATCH_SIZE))
    print(f"Fine-tuning in float16 on one batch of {BATCH_SIZE} frames, {STEPS} steps of AdamW\n")
    print("  step   loss in m², for the data set", flush=True)
    for step in range(STEPS):
        loss = trainer.step(batch, weight)
        if step % 10 == 0 or step == STEPS - 1:
            print(f"  {step:4d}   {loss:.4e}", flush=True)
    print("\n                   gradient, abs min and max      zeros    weights moved")
    for part, module in policy.named_children():
        parameters = [(f"{part}.{name}", value) for name, value in module.named_parameters()]
        if parameters:
            size = torch.cat([value.grad.abs().flatten() for _, value in parameters if value.grad is not None])
            moved = sum(int((value != before[name]).sum()) for name, value in parameters)
            print(
                f"  {part:<15}  {float(size.min()):8.2e}  {float(size.max()):8.2e}   "
                f"{float((size == 0).double().mean()):10.1%}    {moved:,} of {size.numel():,}"
            )


@contextmanager
def _backward_calls() -> Iterator[list[Tensor]]:
    """The tensors on which `backward` is called, multiplied by their `gradient` argument; no backward pass is run."""
    called: list[Tensor] = []

    def note(tensor: Tensor, gradient: Tensor | None = None, *_: Any, **__: Any) -> None:
        called.append(tensor if gradient is None else tensor * gradient)

    backward, Tensor.backward = Tensor.backward, note
    try:
        yield called
    finally:
        Tensor.backward = backward


def _loss(policy: Policy, batch: dict[str, Tensor], frame_weight: Tensor) -> Tensor:
    """The reference: weighted mean square error in metres, in the policy's own precision."""
    feature = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
    error = (policy.decode(feature) - batch["action"]) * torch.tensor(METRES)
    counted = (~batch["action_is_pad"]).float()
    return (frame_weight * (error.square().mean(dim=-1) * counted).sum(dim=1) / counted.sum(dim=1)).sum()


def _batch(seed: int) -> dict[str, Tensor]:
    return next(batches(demonstrations(2 * BATCH_SIZE, seed), BATCH_SIZE, steps=1, seed=seed))


def _trainer(learner: Any, seed: int, frozen: str = "") -> Any:
    """A trainer of a policy that was in evaluation mode, with the part of that name frozen."""
    policy = Policy.from_base(seed=seed).eval()
    if frozen:
        policy.get_submodule(frozen).requires_grad_(False)
    return learner.policy.HalfPrecisionTrainer(policy)


def _split(batch: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """The batch and its frames' weights, as the trainer takes them."""
    return {name: value for name, value in batch.items() if name != "frame_weight"}, batch["frame_weight"]


def _gradients(policy: Policy) -> dict[str, Tensor]:
    return {name: one.grad.clone() for name, one in policy.named_parameters() if one.grad is not None}


def _weights(policy: Policy) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}


def _note_dtypes(ran: dict[str, dict[str, str]], name: str) -> Callable[..., None]:
    def note(module: torch.nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            ways = ran.setdefault(name, {})
            ways["mode"] = "training" if module.training else "evaluation"
            ways["forward"] = _name(output)
            if output.requires_grad:
                output.register_hook(lambda gradient: ways.update(backward=_name(gradient)))

    return note


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


class _Multiplications(TorchFunctionMode):
    """The numbers by which float16 tensors without a graph are multiplied, such as gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.factors: list[float] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _PRODUCTS and len(args) == 2:
            tensors = [one for one in args if isinstance(one, Tensor) and one.dtype == torch.float16]
            numbers = [one for one in args if isinstance(one, (int, float))]
            if len(tensors) == len(numbers) == 1 and not tensors[0].requires_grad:
                self.factors.append(float(numbers[0]))
        return func(*args, **(kwargs or {}))


_PRODUCTS = {"mul", "mul_", "multiply", "multiply_", "__mul__", "__rmul__", "__imul__"}


def near(learner: Any, batch: dict[str, Tensor], offset: Tensor, seed: int) -> dict[str, Any]:
    """The loss that `backward` returns for targets that differ from the float16 policy's chunk by `offset` (B, H, A).

    `chunk` is that chunk and `action` are these targets, both in float32.
    """
    trainer = _trainer(learner, seed)
    inputs, frame_weight = _split(batch)
    observation = {name: inputs[name] for name in OBSERVATION_KEYS}
    with torch.no_grad():
        half = {**observation, "pixel_values": observation["pixel_values"].half()}
        chunk = trainer.half.decode(trainer.half.encode(**half)).float()
    action = chunk + offset
    return {
        "loss": float(trainer.backward({**inputs, "action": action}, frame_weight)),
        "chunk": chunk,
        "action": action,
    }
