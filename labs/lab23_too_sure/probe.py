"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import OBSERVATION_KEYS
from labs.vla.training import fit, overfit

BATCH_SIZE = 16
LEARNING_RATE = 3e-3
STEPS = 70


def loss_and_gradient(learner: Any, logits: Tensor, tokens: Tensor) -> dict[str, Tensor]:
    """`token_loss` of logits (..., V) and tokens (...), and its gradient with respect to the logits."""
    asked = logits.clone().requires_grad_()
    loss = learner.policy.token_loss(asked, tokens)
    loss.backward()
    return {"loss": loss.detach(), "gradient": asked.grad}


def log_probabilities(learner: Any, logits: Tensor) -> dict[str, Tensor]:
    """`log_probabilities` of logits (..., V) with gradients enabled, and without."""
    with_gradient = learner.policy.log_probabilities(logits.clone().requires_grad_()).detach()
    with torch.no_grad():
        return {"with gradients": with_gradient, "without gradients": learner.policy.log_probabilities(logits)}


def policy_loss(learner: Any, batch: dict[str, Tensor], seed: int, louder: float) -> dict[str, Any]:
    """The loss of a fresh policy whose last layer is `louder` times as large, and all its gradients.

    Also its loss in evaluation without gradients, and the logits (B, H, A, bins).
    """
    policy = _loud(learner, seed, louder).train()
    loss = policy(**batch).loss
    loss.backward()
    policy.eval()
    with torch.no_grad():
        logits = policy.head(policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS}))
        in_evaluation = policy(**batch).loss
    return {
        "loss": loss.detach(),
        "loss in evaluation": in_evaluation,
        "logits": logits,
        "gradients": {name: value.grad for name, value in policy.named_parameters() if value.grad is not None},
    }


def built(learner: Any, seed: int) -> dict[str, Any]:
    """The weights of a fresh policy, and the head that its configuration names."""
    policy = learner.policy.build_policy(seed)
    return {"weights": dict(policy.state_dict()), "head": policy.config.head}


def sureness(learner: Any, batch: dict[str, Tensor], seed: int, louder: float) -> Tensor:
    """The log-probability (B,) that a fresh policy gives its chunk."""
    return _loud(learner, seed, louder).eval().log_probability(batch)


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def overfitted(learner: Any, seed: int, steps: int) -> list[float]:
    """Losses of training on one batch, over and over."""
    policy = learner.policy.build_policy(seed)
    return overfit(policy, _one_batch(seed), steps, learning_rate=LEARNING_RATE, seed=seed)


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a policy already overfitted to one batch, and that batch."""
    policy = learner.policy.build_policy(0)
    frames = demonstrations(BATCH_SIZE, seed=23)
    # Trained with torch's own loss, because the learner's may fail before that.
    fit(policy, frames, steps=60, seed=23, batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE, loss_fn=_torch_loss)
    batch = next(batches(frames, BATCH_SIZE, steps=1, seed=23))
    return {"model": policy, "batch": batch, "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3)}


def symptom(learner: Any) -> None:
    """Overfits one batch: the output of `lab run 23`."""
    policy = learner.policy.build_policy(0)
    losses: list[float] = []
    print(f"Overfitting one batch of {BATCH_SIZE} frames\n\n  step      loss", flush=True)

    def report(step: int, loss: float) -> None:
        losses.append(loss)
        if step % 10 == 0 or step == STEPS - 1 or math.isnan(loss):
            print(f"  {step:4d}  {loss:8.4f}", flush=True)
        if math.isnan(loss):
            raise _NoNumberError

    frames = demonstrations(BATCH_SIZE, seed=23)
    try:
        fit(
            policy,
            frames,
            steps=STEPS,
            seed=23,
            batch_size=BATCH_SIZE,
            learning_rate=LEARNING_RATE,
            on_step=report,
        )
    except _NoNumberError:
        print(f"\nOne step before, the loss was {losses[-2]:.5f}.")
    weights = torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])
    sure = policy.log_probability(next(batches(frames, BATCH_SIZE, steps=1, seed=23))).exp().mean()
    print(f"\nWeights that are NaN: {int(weights.isnan().sum()):,} of {weights.numel():,}")
    print(f"Mean probability of the chunk it would execute: {sure:.1%}")


class _NoNumberError(Exception):
    """The loss is NaN."""


def _one_batch(seed: int) -> dict[str, Tensor]:
    return next(batches(demonstrations(BATCH_SIZE, seed), BATCH_SIZE, steps=1, seed=seed))


def _loud(learner: Any, seed: int, louder: float) -> Any:
    policy = learner.policy.build_policy(seed)
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(louder)
    return policy


def _torch_loss(policy: Any, batch: dict[str, Tensor]) -> Tensor:
    feature = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
    tokens = policy.head.encode(policy.action_statistics.normalize(batch["action"]))
    tokens = tokens.masked_fill(batch["action_is_pad"][..., None], -100)
    return F.cross_entropy(policy.head(feature).flatten(0, 2), tokens.flatten())
