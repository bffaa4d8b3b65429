"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

import traceback
from typing import Any

import torch
from torch import Tensor

from labs.vla.dataset import demonstrations
from labs.vla.policy import OBSERVATION_KEYS, PolicyConfig
from labs.vla.rollout import rollout
from labs.vla.training import fit

BATCH_SIZE = 64
TRAINING_STEPS = 200


def train_step(learner: Any, config: dict[str, int], batch: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """One forward and backward of a policy of this config: the loss, the chunk, each head parameter's gradient norm."""
    policy = _policy(learner, config, seed)
    loss = policy(**batch).loss
    loss.backward()
    norms = {
        name: -1.0 if parameter.grad is None else float(parameter.grad.norm())
        for name, parameter in policy.named_parameters()
        if name.startswith("head.")
    }
    return {"loss": loss, "norms": norms, "action": policy.predict({name: batch[name] for name in OBSERVATION_KEYS})}


def velocity(learner: Any, config: dict[str, int], feature: Tensor, noisy: Tensor, time: Tensor, seed: int) -> Tensor:
    """The velocity (B, H, A) that a fresh head of this config gives."""
    with torch.no_grad():
        return _policy(learner, config, seed).head.velocity(feature, noisy, time)


def parameters(learner: Any, config: dict[str, int]) -> dict[str, list[int]]:
    """The shape of every parameter of a fresh head, before it has seen a batch."""
    head = _policy(learner, config, 0).head
    return {name: list(parameter.shape) for name, parameter in head.named_parameters()}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that the pretrained base with a fresh head predicts, from the same noise each time, (B, H, A)."""
    policy = learner.policy.FlowPolicy.from_base(seed=seed).eval()
    torch.manual_seed(seed)
    return policy.predict(batch)


def trained_rollout(learner: Any, seed: int, episodes: int) -> dict[str, Any]:
    """Fine-tune the tabletop's own policy from the base and run closed-loop episodes."""
    policy = learner.policy.FlowPolicy.from_base(seed=seed)
    frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, seed)
    losses = fit(policy, frames, steps=TRAINING_STEPS, seed=seed, batch_size=BATCH_SIZE)
    result = rollout(policy, episodes=episodes, first_seed=500_000 + seed)
    return {"final_loss": sum(losses[-20:]) / 20, "success": torch.from_numpy(result.success)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a policy for the arm with seven joints, and a batch of its shapes."""
    policy = learner.policy.FlowPolicy(learner.policy.seven_joint_arm())
    return {
        "model": policy,
        "batch": _random_batch(policy.config, 8),
        "optimizer": torch.optim.AdamW(policy.parameters()),
    }


def symptom(learner: Any) -> None:
    """One batch for each of two robots: what `lab run 01` shows."""
    for name, config in (
        ("the tabletop robot", PolicyConfig.tiny()),
        ("an arm with seven joints", learner.policy.seven_joint_arm()),
    ):
        print(f"One batch for {name}: chunks of {config.horizon} x {config.action_dim}")
        policy = learner.policy.FlowPolicy(config)
        try:
            loss = policy(**_random_batch(config, 32)).loss
        except RuntimeError as error:
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/torch/" not in frame.filename]
            print("  Traceback (most recent call last):")
            for frame in frames[-4:]:
                file = frame.filename.rpartition("/labs/vla/")
                where = f"labs/vla/{file[2]}" if file[1] else frame.filename.rpartition("/")[2]
                print(f"    {where}:{frame.lineno} in {frame.name}\n      {frame.line}")
            print(f"  RuntimeError: {error}")
        else:
            print(f"  loss {loss:.3f}\n")


def _policy(learner: Any, config: dict[str, int], seed: int) -> Any:
    torch.manual_seed(seed)
    return learner.policy.FlowPolicy(PolicyConfig(**config))


def _random_batch(config: PolicyConfig, size: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "pixel_values": torch.randn(size, 3, config.image_size, config.image_size, generator=generator),
        "input_ids": torch.randint(2, config.vocabulary_size, (size, 8), generator=generator),
        "attention_mask": torch.ones(size, 8, dtype=torch.long),
        "state": torch.randn(size, config.state_dim, generator=generator),
        "action": 0.1 * torch.randn(size, config.horizon, config.action_dim, generator=generator),
        "action_is_pad": torch.zeros(size, config.horizon, dtype=torch.bool),
    }
