"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.vla.dataset import batches, demonstrations
from labs.vla.rollout import rollout

SEED, BATCH_SIZE = 55, 16
TRAINING_STEPS, TRAINING_BATCH_SIZE = 100, 32
HEAD_STEPS = 250


def reach(learner: Any, feature: Tensor, action: Tensor, seed: int) -> dict[str, Any]:
    """The actions that the head predicts after it alone was trained on `feature` (B, D) to predict `action` (B, H, 3).

    Also the final loss, and the loss if the gripper's targets were inverted.
    """
    policy = learner.policy.RecordedPolicy.from_base(seed=seed)
    is_pad = torch.zeros(action.shape[:2], dtype=torch.bool)
    optimizer = torch.optim.Adam(policy.head.parameters(), lr=1e-2)
    for step in range(HEAD_STEPS):
        optimizer.param_groups[0]["lr"] = 1e-2 * (1 - step / HEAD_STEPS)
        optimizer.zero_grad()
        policy.loss(feature, action, is_pad).backward()
        optimizer.step()
    other = action * action.new_tensor([1.0, 1.0, -1.0])
    with torch.no_grad():
        return {
            "action": policy.decode(feature),
            "loss": float(policy.loss(feature, action, is_pad)),
            "loss_for_other_grips": float(policy.loss(feature, other, is_pad)),
        }


def settings(learner: Any) -> dict[str, float]:
    """The learning rate and the number of steps that the learner's file sets."""
    return {
        "learning_rate": float(getattr(learner.policy, "LEARNING_RATE", 0.0)),
        "steps": float(getattr(learner.policy, "STEPS", 0)),
    }


def losses(learner: Any, batch: dict[str, Tensor], others: list[Tensor], seed: int) -> list[float]:
    """The training loss of a newly built policy on `batch`, and on `batch` with each of `others` as its actions."""
    policy = learner.policy.RecordedPolicy.from_base(seed=seed).eval()
    with torch.no_grad():
        return [float(policy(**{**batch, "action": action}).loss) for action in (batch["action"], *others)]


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a newly built policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.RecordedPolicy.from_base(seed=seed).eval().predict(batch)


def by_heart(learner: Any, seed: int) -> dict[str, Tensor]:
    """The actions (B, H, 3) predicted for one batch after learning it by heart, and the demonstrated ones."""
    policy, batch = learner.policy.RecordedPolicy.from_base(seed=seed), _batch(seed)
    learner.policy.learn_by_heart(policy, batch, seed=seed)
    return {"predicted": policy.predict(batch), "action": batch["action"], "action_is_pad": batch["action_is_pad"]}


def trained_rollout(learner: Any, seed: int, episodes: int) -> dict[str, Any]:
    """Fine-tune from the base and run closed-loop episodes: which succeeded, and which never closed the gripper."""
    return _rollout(learner, seed, episodes)


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a newly built policy, a batch, and a budget large enough to train a copy."""
    policy = learner.policy.RecordedPolicy.from_base(seed=0)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    return {"model": policy, "batch": _batch(SEED), "optimizer": optimizer, "budget": 120}


def symptom(learner: Any) -> None:
    """Learn sixteen frames by heart, then fine-tune and run episodes: what `lab run 55` shows."""
    policy, batch = learner.policy.RecordedPolicy.from_base(seed=SEED), _batch(SEED)
    print(f"Learning {BATCH_SIZE} frames by heart", flush=True)
    curve = learner.policy.learn_by_heart(policy, batch, seed=SEED)
    shown = [round(i * (len(curve) - 1) / 6) for i in range(7)]
    print("\n  step " + "".join(f"{step:8d}" for step in shown))
    print("  loss " + "".join(f"{curve[step]:8.4f}" for step in shown))
    predicted, target = policy.predict(batch)[:, 0], batch["action"][:, 0]
    closes = target[:, 2] > 0
    print("\nPredictions for these frames afterwards, the first action of each chunk")
    print(f"  largest movement   expert {100 * target[:, :2].abs().max():5.1f} cm", end="")
    print(f"   policy {100 * predicted[:, :2].abs().max():5.1f} cm")
    print(f"  gripper, to close  expert {target[closes, 2].mean():+5.2f}", end="")
    print(f"      policy {predicted[closes, 2].mean():+5.2f}   (closes above 0)", flush=True)
    result = _rollout(learner, SEED, 50)
    success, never = float(result["success"].double().mean()), float(result["never_closed"].double().mean())
    print(f"\n50 episodes after fine-tuning: {success:.0%} success, {never:.0%} never closed the gripper")


def _rollout(learner: Any, seed: int, episodes: int) -> dict[str, Any]:
    policy = learner.policy.RecordedPolicy.from_base(seed=seed)
    frames = demonstrations(TRAINING_STEPS * TRAINING_BATCH_SIZE, seed)
    learner.policy.train(policy, frames, steps=TRAINING_STEPS, batch_size=TRAINING_BATCH_SIZE, seed=seed)
    result = rollout(policy, episodes=episodes, first_seed=500_000 + seed)
    success, wrong = torch.from_numpy(result.success), torch.from_numpy(result.wrong_block)
    return {"success": success, "never_closed": ~success & ~wrong}


def _batch(seed: int) -> dict[str, Tensor]:
    return next(batches(demonstrations(2 * BATCH_SIZE, seed), BATCH_SIZE, steps=1, seed=seed))
