"""What the grader and `lab run` measure. Runs with the learner's project, in the sandboxed child."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import yaml
from torch import Tensor

from labs.vla.dataset import collate, demonstrations
from labs.vla.policy import OBSERVATION_KEYS, Policy
from labs.vla.randomness import private_randomness
from labs.vla.rollout import Rollout, rollout

EPISODES = 50


def settings(learner: Any) -> dict[str, Any]:
    """The contents of `config.yaml`."""
    return yaml.safe_load(learner.config.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def scaled(learner: Any, action: Tensor, is_pad: Tensor, tried: Tensor) -> dict[str, Tensor]:
    """What the scale of these actions makes of the values `tried`, there and back, and of them as the head's output."""
    scale = learner.model.ActionScale.of(action, is_pad)
    normalized = scale.normalize(tried)
    return {"normalized": normalized, "back": scale.unnormalize(normalized), "actions": scale.unnormalize(tried)}


def chunk(learner: Any, batch: dict[str, Tensor], seed: int, count: int) -> dict[str, Tensor]:
    """The chunk that a new policy predicts for a batch in evaluation, and the head's numbers for the same batch."""
    policy = _built(learner, seed, count)
    with torch.no_grad():
        feature = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
        return {
            "action": policy.predict(batch),
            "called": policy(**{name: batch[name] for name in OBSERVATION_KEYS}).action,
            "head": policy.head.predict(feature),
        }


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a new policy predicts, (B, H, 3)."""
    with private_randomness(seed):
        return _built(learner, seed, 256).predict(batch)  # type: ignore[no-any-return]


def losses(learner: Any, changed: Mapping[str, Any]) -> list[float]:
    """The losses of a training with these settings on top of those of the file."""
    return learner.train.train(settings(learner) | dict(changed))[1]  # type: ignore[no-any-return]


def held_out_loss(learner: Any, seed: int, batch_size: int) -> dict[str, Any]:
    """The held-out loss that the project logs for a new policy, and its line of the log."""
    policy = _built(learner, seed, batch_size)
    loss = learner.train.held_out_loss(policy, settings(learner))
    return {"loss": float(loss), "line": learner.train.line(0.25, {"success": 0.5, "wrong_block": 0.25})}


def summarised(learner: Any, success: Tensor, wrong_block: Tensor) -> dict[str, float]:
    """The project's summary of episodes that ended like this."""
    return _numbers(learner.evaluate.summary(_result(success.numpy(), wrong_block.numpy())))


def evaluated(learner: Any, move: float, grip: float, changed: Mapping[str, Any]) -> dict[str, float]:
    """The project's evaluation of a policy that always gives the same command."""
    policy = _built(learner, 0, 64)
    command = torch.tensor([move, move, grip])
    with patch.object(policy, "predict", lambda batch: command.expand(len(batch["state"]), 4, 3)):
        return _numbers(learner.evaluate.evaluate(policy, settings(learner) | dict(changed)))


def trained_rollout(learner: Any, seed: int) -> dict[str, Tensor]:
    """A training from another seed, and episodes in closed loop that the project does not judge."""
    policy, _ = learner.train.train(settings(learner) | {"seed": seed})
    result = rollout(policy, episodes=EPISODES, first_seed=500_000 + seed)
    return {"success": torch.from_numpy(result.success), "distance": torch.from_numpy(result.distance)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a new policy and a batch of demonstrations."""
    batch = collate(demonstrations(16, seed=11), np.arange(16))
    return {"model": _built(learner, 0, 256), "batch": batch}


def symptom(learner: Any) -> None:
    """The line that the project logs, and what the arm does in the same episodes."""
    own = settings(learner)
    policy, _ = learner.train.train(own)
    result = learner.evaluate.evaluate(policy, own)
    print("$ python train.py")
    print(learner.train.line(learner.train.held_out_loss(policy, own), result), flush=True)
    seen = rollout(policy, episodes=own["episodes"], first_seed=own["first_seed"], execute=own["execute"])
    print(f"\nThe same {len(seen.success)} episodes, as the robot's operator counts them:")
    print(f"  grasped the named block {int(seen.success.sum()):3d}")
    print(f"  closed at another block {int(seen.wrong_block.sum()):3d}")
    print(f"  ran out of time         {int((~seen.success & ~seen.wrong_block).sum()):3d}")
    print(f"  median distance to the named block at the end {100 * seen.final_distance:.0f} cm")


def _built(learner: Any, seed: int, count: int) -> Policy:
    frames = learner.data.draw(settings(learner) | {"frames": count})
    return learner.model.build_policy(seed, frames).eval()  # type: ignore[no-any-return]


def _numbers(found: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in found.items()}


def _result(success: np.ndarray, wrong_block: np.ndarray) -> Rollout:
    steps = np.where(success | wrong_block, 6, 20)
    return Rollout(success, wrong_block, np.where(success, 0.03, 0.3), steps)
