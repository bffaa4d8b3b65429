"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.vla.dataset import batches, demonstrations
from labs.vla.training import fit

BATCH_SIZE, LEARNING_RATE = 32, 2e-3
SYMPTOM_STEPS, OUTCOME_STEPS = 120, 80


def chunk(learner: Any, feature: Tensor, horizon: int, action_dim: int, seed: int) -> Tensor:
    """The normalised chunk (B, H, A) that a newly built head predicts from features (B, D)."""
    with torch.no_grad():
        return _head(learner, feature, horizon, action_dim, seed).predict(feature)


def sizes(learner: Any, horizon: int, action_dim: int) -> list[int]:
    """The sizes that a newly built head says it has."""
    head = learner.policy.ChunkHead(16, horizon, action_dim)
    return [head.horizon, head.action_dim]


def head_loss(
    learner: Any, feature: Tensor, target: Tensor, is_pad: Tensor, seed: int, training: bool = True
) -> dict[str, Any]:
    """The loss of a newly built head for normalised targets (B, H, A), and its gradient with respect to the chunk."""
    head = _head(learner, feature, target.shape[1], target.shape[2], seed).train(training)
    chunks: list[Tensor] = []

    def keep(_module: Any, _inputs: Any, output: Tensor) -> None:
        output.retain_grad()
        chunks.append(output)

    handle = head.mlp.register_forward_hook(keep)
    loss = head.loss(feature, target, is_pad)
    handle.remove()
    loss.backward()
    return {"loss": loss, "chunk": chunks[-1], "gradient": chunks[-1].grad}


def policy_loss(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """The loss of a newly built policy, and the error of each number that it predicts, normalised, (B, H, A)."""
    policy = learner.policy.build_policy(seed).eval()
    with torch.no_grad():
        error, _ = _error(policy, batch)
        return {"loss": policy(**batch).loss, "error": error}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy predicts in evaluation mode, (B, 8, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def error_after_training(learner: Any, seed: int) -> Tensor:
    """The normalised error of each number of the steps that exist, on unseen frames, after a short training."""
    policy, _ = _train(learner, seed, OUTCOME_STEPS)
    error, is_step = _error(policy, _batch(learner, 256, seed + 1))
    return error[is_step]


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of demonstrations."""
    policy = learner.policy.build_policy(0)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    return {"model": policy, "batch": _batch(learner, 32, 4), "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """Trains the policy, then compares its loss with its error by steps left: the output of `lab run 42`."""
    print(f"Fine-tuning the policy with chunks of {learner.policy.HORIZON}, {SYMPTOM_STEPS} steps\n\n  step    loss")
    policy, losses = _train(learner, 42, SYMPTOM_STEPS)
    for step in (*range(0, SYMPTOM_STEPS, 40), SYMPTOM_STEPS - 1):
        print(f"  {step:4d}  {losses[step]:6.3f}")
    print("\n1,024 new frames, by the number of steps left in the episode\n")
    print("  steps left   frames     loss   mean error of the policy in those steps")
    batch = _batch(learner, 1024, 43)
    left = (~batch["action_is_pad"]).sum(dim=1)
    for name, rows in (("1", left == 1), ("2 or 3", (left > 1) & (left < 4)), ("4 to 7", (left > 3) & (left < 8))):
        _line(policy, name, {key: value[rows] for key, value in batch.items()})
    _line(policy, "8 and more", {key: value[left == 8] for key, value in batch.items()})


def _line(policy: Any, name: str, batch: dict[str, Tensor]) -> None:
    with torch.no_grad():
        loss = float(policy(**batch).loss)
    error, is_step = _error(policy, batch)
    print(f"  {name:<10} {len(error):8d} {loss:8.3f} {float(error[is_step].mean()):8.3f}")


def _train(learner: Any, seed: int, steps: int) -> tuple[Any, list[float]]:
    policy = learner.policy.build_policy(seed)
    frames = demonstrations(steps * BATCH_SIZE, seed, horizon=learner.policy.HORIZON)
    losses = fit(policy, frames, steps=steps, seed=seed, batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE)
    return policy, losses


def _error(policy: Any, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The absolute error of every number (B, H, A) in normalised units, and which steps exist (B, H)."""
    normalize = policy.action_statistics.normalize
    return (normalize(policy.predict(batch)) - normalize(batch["action"])).abs(), ~batch["action_is_pad"]


def _batch(learner: Any, size: int, seed: int) -> dict[str, Tensor]:
    frames = demonstrations(size, seed, horizon=learner.policy.HORIZON)
    return next(batches(frames, size, steps=1, seed=seed))


def _head(learner: Any, feature: Tensor, horizon: int, action_dim: int, seed: int) -> Any:
    torch.manual_seed(seed)
    return learner.policy.ChunkHead(feature.shape[1], horizon, action_dim)
