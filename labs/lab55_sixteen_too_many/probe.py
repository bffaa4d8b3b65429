"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.vla.dataset import batches, demonstrations
from labs.vla.rollout import rollout

SEED, BATCH_SIZE = 55, 16
TRAINING_STEPS, TRAINING_BATCH_SIZE = 100, 32
HEAD_STEPS, HEAD_LEARNING_RATE = 250, 3e-3
FRAMES = 24


def reach(learner: Any, feature: Tensor, action: Tensor, seed: int) -> dict[str, Tensor]:
    """What the head predicts after it alone was trained on `feature` (B, D) to predict `action` (B, H, 3).

    In training mode, in evaluation mode, and in evaluation mode one frame at a time.
    """
    policy = learner.policy.RecordedPolicy.from_base(seed=seed)
    is_pad = torch.zeros(action.shape[:2], dtype=torch.bool)
    optimizer = torch.optim.Adam(policy.head.parameters())
    for step in range(HEAD_STEPS):
        optimizer.param_groups[0]["lr"] = HEAD_LEARNING_RATE * (1 - step / HEAD_STEPS)
        optimizer.zero_grad()
        policy.loss(feature, action, is_pad).backward()
        optimizer.step()
    with torch.no_grad():
        training, evaluation = policy.decode(feature), policy.eval().decode(feature)
        alone = torch.cat([policy.decode(one[None]) for one in feature])
    return {"training mode": training, "evaluation mode": evaluation, "evaluation mode, frame by frame": alone}


def limits(learner: Any, feature: Tensor, seed: int) -> dict[str, float]:
    """The smallest and the largest normalised number that a fresh head predicts for very large features (B, D)."""
    policy = learner.policy.RecordedPolicy.from_base(seed=seed)
    with torch.no_grad():
        chunk = policy.head.predict(1e4 * feature)
    return {"smallest": float(chunk.min()), "largest": float(chunk.max())}


def decoded(learner: Any, feature: Tensor, seed: int) -> dict[str, Tensor]:
    """What a fresh policy and its head predict from `feature` (B, D)."""
    policy = learner.policy.RecordedPolicy.from_base(seed=seed)
    with torch.no_grad():
        return _decoded(policy, feature)


def loss_at(learner: Any, feature: Tensor, action: Tensor, is_pad: Tensor, seed: int) -> dict[str, Tensor]:
    """A fresh policy's normalised chunk in evaluation mode, and its loss in training mode, both from `feature` (B, D).

    With their derivatives with respect to the feature, (B, H, A, D) and (B, D).
    """
    policy = learner.policy.RecordedPolicy.from_base(seed=seed).eval()
    feature.requires_grad_()
    chunk = policy.head.predict(feature)
    rows = [torch.autograd.grad(one, feature, retain_graph=True)[0] for one in chunk.sum(dim=0).flatten()]
    jacobian = torch.stack(rows, dim=1).unflatten(1, chunk.shape[1:])  # a frame's chunk depends on its feature alone
    loss = policy.train().loss(feature, action, is_pad)
    (gradient,) = torch.autograd.grad(loss, feature)
    return {"chunk": chunk, "jacobian": jacobian, "loss": loss, "gradient": gradient}


def counted(learner: Any, seed: int) -> dict[str, float]:
    """How much a fresh policy's loss changes with the normalised target: of the movements, and of the gripper.

    From 0 to half a unit, and from 1.5 to 3 units.
    """
    policy = learner.policy.RecordedPolicy.from_base(seed=seed)
    feature = torch.zeros(1, policy.config.width)
    with torch.no_grad():
        none, moves, grips, half, beyond, far = (
            float(
                policy.head.loss(feature, torch.tensor(target).expand(1, policy.config.horizon, 3), _no_padding(policy))
            )
            for target in (
                [0.0, 0.0, 0.0],
                [0.5, 0.5, 0.0],
                [0.0, 0.0, 0.5],
                [0.5, 0.5, 0.5],
                [1.5, 1.5, 1.5],
                [3.0, 3.0, 3.0],
            )
        )
    return {"moves": moves - none, "grips": grips - none, "within": half - none, "beyond": far - beyond}


def settings(learner: Any) -> dict[str, float]:
    """The learning rate and the number of steps that the learner's file sets."""
    return {
        "learning_rate": float(getattr(learner.policy, "LEARNING_RATE", 0.0)),
        "steps": float(getattr(learner.policy, "STEPS", 0)),
    }


def checkpoint(learner: Any) -> dict[str, Tensor]:
    """Everything that a checkpoint of a fresh policy holds."""
    return dict(learner.policy.RecordedPolicy.from_base(seed=0).state_dict())


def trained_parts(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """A fresh policy's loss, and the names of the weights whose gradient is missing or zero."""
    policy = learner.policy.RecordedPolicy.from_base(seed=seed)
    loss = policy(**batch).loss
    loss.backward()
    weights = {name: value for name, value in policy.named_parameters() if name.endswith("weight")}
    idle = [name for name, value in weights.items() if value.grad is None or not value.grad.any()]
    return {"loss": loss, "idle": idle}


def fine_tuned(learner: Any, seed: int, steps: int, batch_size: int) -> dict[str, list[float]]:
    """The losses that `train` returns for a fresh policy, twice, and the loss of the first batch before."""
    frames, losses = demonstrations(FRAMES, seed), []
    policies = [learner.policy.RecordedPolicy.from_base(seed=seed) for _ in range(2)]
    with torch.no_grad():
        first = float(policies[0](**next(batches(frames, batch_size, steps=steps, seed=seed))).loss)
    for policy in policies:
        losses.append(learner.policy.train(policy, frames, steps=steps, batch_size=batch_size, seed=seed))
    return {"before": [first], "losses": losses[0], "again": losses[1]}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a newly built policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.RecordedPolicy.from_base(seed=seed).eval().predict(batch)


def by_heart(learner: Any, seed: int) -> dict[str, Any]:
    """The actions (B, H, 3) predicted for one batch after learning it by heart, and the demonstrated ones.

    Also the number of steps that the file sets, and of the losses that were returned.
    """
    policy, batch = learner.policy.RecordedPolicy.from_base(seed=seed), _batch(seed)
    losses = learner.policy.learn_by_heart(policy, batch, seed=seed)
    return {
        "predicted": policy.predict(batch),
        "action": batch["action"],
        "action_is_pad": batch["action_is_pad"],
        "losses": losses,
    }


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


def _no_padding(policy: Any) -> Tensor:
    return torch.zeros(1, policy.config.horizon, dtype=torch.bool)


def _decoded(policy: Any, feature: Tensor) -> dict[str, Tensor]:
    return {"action": policy.decode(feature), "normalised": policy.head.predict(feature)}


def _batch(seed: int) -> dict[str, Tensor]:
    return next(batches(demonstrations(2 * BATCH_SIZE, seed), BATCH_SIZE, steps=1, seed=seed))
