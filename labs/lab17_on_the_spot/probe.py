"""Measurements of the learner's training step for the grader and `lab run`. Runs next to their code, sandboxed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy

SEED, BATCH_SIZE, STEPS = 17, 16, 40


def one_step(
    learner: Any, batch: dict[str, Tensor], seed: int, scale: float, loss_weight: float = 1.0
) -> dict[str, Any]:
    """One training step of a fresh policy at this loss scale, and the float32 gradient to compare it with.

    The policy's loss is multiplied by `loss_weight`, like an action loss next to a language loss.
    `moved` is the movement of all weights as one vector, and `gradient` the float32 gradient of the same loss,
    neither scaled nor clipped. `learning_rate` is the optimizer's.
    """
    policy = _Weighted.from_base(seed=seed)
    policy.loss_weight = loss_weight
    policy.train()
    policy(**batch).loss.backward()
    gradient = _joined(parameter.grad for parameter in policy.parameters())
    policy.zero_grad()
    before = _joined(policy.parameters())
    optimizer, scaler = learner.policy.build_optimizer(policy), learner.policy.build_scaler(policy, scale)
    step = learner.policy.training_step(policy, batch, optimizer, scaler)
    return {
        "gradient": gradient,
        "moved": _joined(policy.parameters()) - before,
        "learning_rate": float(optimizer.param_groups[0]["lr"]),
        "norm": float(step.gradient_norm),
        "skipped": bool(step.skipped),
        "scale_after": float(scaler.get_scale()),
    }


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a policy predicts after one training step on `batch`, (B, H, 3)."""
    policy = Policy.from_base(seed=seed)
    learner.policy.train(policy, [batch])
    return policy.eval().predict(batch)


def trained(learner: Any, seed: int) -> dict[str, Any]:
    """The losses of repeated training on one batch, and the last loss in float32."""
    policy, batch = Policy.from_base(seed=seed), _batch(seed)
    steps = learner.policy.train(policy, [batch] * STEPS)
    with torch.no_grad():
        return {"losses": [float(step.loss) for step in steps], "in_float32": float(policy(**batch).loss)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit's arguments: a fresh policy, its batch and optimizer, and five steps of the learner's loop."""
    policy, batch = Policy.from_base(seed=0), _batch(SEED)
    optimizer, scaler = learner.policy.build_optimizer(policy), learner.policy.build_scaler(policy)

    def loop() -> None:
        for _ in range(5):
            learner.policy.training_step(policy, batch, optimizer, scaler)

    return {"model": policy, "batch": batch, "optimizer": optimizer, "loop": loop}


def symptom(learner: Any) -> None:
    """Trains on one batch and prints the log: what `lab run 17` shows."""
    policy, batch = Policy.from_base(seed=SEED), _batch(SEED)
    before = _joined(policy.parameters())
    print(f"Fine-tuning on one batch of {BATCH_SIZE} frames, mixed precision, {STEPS} steps of SGD\n")
    print("  step      loss       scale   skipped", flush=True)

    def report(index: int, step: Any) -> None:
        if index % 10 == 0 or index == STEPS - 1:
            print(
                f"  {index:4d}   {step.loss:7.4f}   {step.scale:9.0f}   {'yes' if step.skipped else 'no'}", flush=True
            )

    learner.policy.train(policy, [batch] * STEPS, on_step=report)
    moved = (_joined(policy.parameters()) - before).norm() / before.norm()
    print(f"\nThe weights have moved by {float(moved):.1e} of their size.")


class _Weighted(Policy):
    loss_weight = 1.0

    def loss(self, feature: Tensor, action: Tensor, action_is_pad: Tensor) -> Tensor:
        return self.loss_weight * super().loss(feature, action, action_is_pad)


def _batch(seed: int) -> dict[str, Tensor]:
    return next(batches(demonstrations(2 * BATCH_SIZE, seed), BATCH_SIZE, steps=1, seed=seed))


def _joined(tensors: Any) -> Tensor:
    """All tensors as one vector, in float64; None is left out."""
    return torch.cat([tensor.detach().flatten().double() for tensor in tensors if tensor is not None])
