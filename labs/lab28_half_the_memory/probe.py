"""Measures the learner's trainer for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import OBSERVATION_KEYS, Policy

SEED, BATCH_SIZE, STEPS = 28, 16, 40
METRES = (1.0, 1.0, 0.04)


def gradients(learner: Any, batch: dict[str, Tensor], frame_weight: Tensor, seed: int) -> dict[str, Any]:
    """Gradient (all parameters in one vector) and loss of one backward of the trainer, and the same in float32."""
    trainer = learner.policy.HalfPrecisionTrainer(Policy.from_base(seed=seed))
    loss = trainer.backward(batch, frame_weight)
    found = [parameter.grad for parameter in trainer.master.parameters()]
    policy = Policy.from_base(seed=seed).train()
    wanted = _loss(policy, batch, frame_weight)
    wanted.backward()
    return {
        "gradient": _joined(found),
        "dtypes": sorted({str(gradient.dtype) for gradient in found if gradient is not None}),
        "in_float32": _joined(parameter.grad for parameter in policy.parameters()),
        "loss": float(loss),
        "loss_in_float32": float(wanted.detach()),
    }


def dtypes(learner: Any, batch: dict[str, Tensor], frame_weight: Tensor, seed: int) -> dict[str, str]:
    """The dtype in which each linear layer of the trainer's policies ran during one backward, by name."""
    trainer = learner.policy.HalfPrecisionTrainer(Policy.from_base(seed=seed))
    ran: dict[str, str] = {}
    for policy in (trainer.master, trainer.half):
        for name, module in policy.named_modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(lambda _, __, out, name=name: ran.update({name: str(out.dtype)}))
    trainer.backward(batch, frame_weight)
    return ran


def one_step(learner: Any, batch: dict[str, Tensor], frame_weight: Tensor, seed: int) -> dict[str, Any]:
    """How far one step moves the master, the learning rate, and how far the float16 copy is from the master."""
    trainer = learner.policy.HalfPrecisionTrainer(Policy.from_base(seed=seed))
    before = _joined(trainer.master.parameters())
    trainer.step(batch, frame_weight)
    after = _joined(trainer.master.parameters())
    return {
        "moved": after - before,
        "learning_rate": float(trainer.optimizer.param_groups[0]["lr"]),
        "apart": float((_joined(trainer.half.parameters()) - after).norm() / after.norm()),
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
    trainer = learner.policy.HalfPrecisionTrainer(Policy.from_base(seed=0))
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


def _joined(tensors: Any) -> Tensor:
    """All tensors as one vector in float64; None is left out."""
    return torch.cat([tensor.detach().flatten().double() for tensor in tensors if tensor is not None])
