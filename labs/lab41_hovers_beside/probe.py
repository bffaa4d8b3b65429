"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.vla.dataset import Frames, batches, demonstrations
from labs.vla.rollout import rollout
from labs.vla.training import fit

BATCH_SIZE = 64
TRAINING_STEPS = 150


def round_trip(
    learner: Any, demonstrated: Tensor, action_is_pad: Tensor, action: Tensor, normalised: Tensor
) -> dict[str, Tensor]:
    """With bounds of `demonstrated` (N, H, A): round trips of `action` and of `normalised`, (..., A) each.

    The bounds of other demonstrations, which are fitted first, must be replaced.
    """
    normaliser = learner.policy.BoundsNormaliser(action.shape[-1]).eval()
    normaliser.fit(3 * demonstrated - 1, action_is_pad)
    normaliser.fit(demonstrated, action_is_pad)
    return {
        "normalised": normaliser.normalise(action),
        "returned": normaliser.unnormalise(normaliser.normalise(action)),
        "unnormalised": normaliser.unnormalise(normalised),
        "normalised_again": normaliser.normalise(normaliser.unnormalise(normalised)),
    }


def loss_and_action(learner: Any, batch: dict[str, Tensor], seed: int, louder: float) -> dict[str, Any]:
    """The loss, all gradients and the executed chunk (B, H, A) of a fresh policy with the batch's bounds.

    The weights of the head's last layer are multiplied by `louder` first.
    """
    policy = _policy(learner, batch, seed).train()
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(louder)
    loss = policy(**batch).loss
    loss.backward()
    gradients = {name: value.grad for name, value in policy.named_parameters() if value.grad is not None}
    return {"loss": loss.detach(), "gradients": gradients, "executed": policy.eval().predict(batch)}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy with the batch's bounds predicts in evaluation mode, (B, H, 3)."""
    return _policy(learner, batch, seed).eval().predict(batch)


def built(learner: Any, count: int, seed: int, normalised: Tensor) -> dict[str, Any]:
    """What `build_policy` makes of demonstrations: its weights, and `normalised` (M, A) unnormalised."""
    policy = learner.policy.build_policy(demonstrations(count, seed), seed)
    return {
        "weights": {name: value for name, value in policy.state_dict().items() if not name.startswith("normaliser.")},
        "unnormalised": policy.normaliser.unnormalise(normalised),
    }


def loaded(learner: Any, checkpoint: dict[str, Tensor], action: Tensor, normalised: Tensor) -> dict[str, Tensor]:
    """What a normaliser that has loaded `checkpoint` makes of both, and the names in its own checkpoint."""
    normaliser = learner.policy.BoundsNormaliser(action.shape[-1])
    normaliser.load_state_dict(checkpoint)
    return {
        "normalised": normaliser.normalise(action),
        "unnormalised": normaliser.unnormalise(normalised),
        "saved": dict(normaliser.state_dict()),
    }


def trained_rollout(learner: Any, seed: int, episodes: int) -> dict[str, Any]:
    """Fine-tune from the base and run closed-loop episodes."""
    policy, losses = _train(learner, seed)
    result = rollout(policy, episodes=episodes, first_seed=500_000 + seed)
    return {
        "final_loss": sum(losses[-20:]) / 20,
        "success": torch.from_numpy(result.success),
        "distance": torch.from_numpy(result.distance),
    }


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of demonstrations."""
    frames = demonstrations(2000, seed=41)
    policy = learner.policy.build_policy(frames, 0)
    batch = next(batches(frames, 32, steps=1, seed=41))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    return {"model": policy, "batch": batch, "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """Trains the policy and runs it in closed loop: the output of `lab run 41`."""
    print(f"Fine-tuning BoundsPolicy from the base, {TRAINING_STEPS} steps\n\n  step    loss")

    def report(step: int, loss: float) -> None:
        if step % 50 == 0 or step == TRAINING_STEPS - 1:
            print(f"  {step:4d}  {loss:6.3f}", flush=True)

    policy, _ = _train(learner, 41, report)
    held_out = next(batches(demonstrations(256, seed=42), 256, steps=1, seed=42))
    with torch.no_grad():
        print(f"\nloss on 256 unseen frames: {policy(**held_out).loss:.3f}")
    result = rollout(policy, episodes=50)
    print(
        f"50 episodes: {result.success_rate:.0%} success, {result.never_closed_rate:.0%} never closed at a block\n"
        f"median distance to the named block at the end {100 * result.final_distance:.1f} cm (closing reaches 7 cm)"
    )


def _train(learner: Any, seed: int, on_step: Any = None) -> tuple[Any, list[float]]:
    frames: Frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, seed)
    policy = learner.policy.build_policy(frames, seed)
    return policy, fit(policy, frames, steps=TRAINING_STEPS, seed=seed, batch_size=BATCH_SIZE, on_step=on_step)


def _policy(learner: Any, batch: dict[str, Tensor], seed: int) -> Any:
    policy = learner.policy.BoundsPolicy.from_base(seed=seed)
    policy.normaliser.fit(batch["action"], batch["action_is_pad"])
    return policy
