"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from debugkit import Declare
from labs.vla.dataset import batches
from labs.vla.rollout import rollout
from labs.vla.training import fit

BATCH_SIZE = 64
TRAINING_STEPS = 150
HELD_OUT = 256


def actions(learner: Any, batch: dict[str, Tensor], others: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """The chunk (B, H, 3) that a fresh policy predicts for `batch` ("as recorded"), for each of the other windows of
    states (B, 3, 3), and for the robot's input: the present state alone, (B, 3)."""
    policy = learner.policy.build_policy(seed).eval()
    windows = {"as recorded": batch["state"], **others, "the robot's": batch["state"][:, 1]}
    return {name: policy.predict({**batch, "state": state}) for name, state in windows.items()}


def inputs(learner: Any, batch: dict[str, Tensor], seed: int, training: bool) -> dict[str, Tensor]:
    """The language model's input for the arm's position, (B, D), the motion's part of the feature, (B, D), and the
    weights of the layers that compute them."""
    policy = learner.policy.build_policy(seed).train(training)
    given: list[Tensor] = []
    moved: list[Tensor] = []
    handles = (
        policy.language_model.register_forward_pre_hook(
            lambda _, __, keywords: given.append(keywords["inputs_embeds"][:, -1].detach().clone()), with_kwargs=True
        ),
        policy.motion.register_forward_hook(lambda _, __, output: moved.append(output.detach().clone())),
    )
    policy.predict(batch)
    for handle in handles:
        handle.remove()
    return {
        "position": given[0],
        "motion": moved[0] if moved else torch.zeros(0),
        "weight": policy.proprioception.weight.detach(),
        "bias": policy.proprioception.bias.detach(),
        "motion_weight": policy.motion.weight.detach(),
    }


def losses(learner: Any, batch: dict[str, Tensor], others: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """The training loss of a fresh policy in training mode: on `batch`, twice, and on `batch` with other windows."""
    policy = learner.policy.build_policy(seed).train()
    with torch.no_grad():
        found = {name: policy(**{**batch, "state": state}).loss for name, state in others.items()}
        return {"loss": policy(**batch).loss, "again": policy(**batch).loss, **found}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def trained_rollout(learner: Any, seed: int, episodes: int) -> dict[str, Any]:
    """Fine-tune from the base; offline errors in metres with recorded and with the robot's windows; episodes."""
    policy, _ = _train(learner, seed)
    recorded, reported = _offline_errors(learner, policy, seed)
    result = rollout(policy, episodes=episodes, first_seed=500_000 + seed)
    return {"recorded": recorded, "reported": reported, "success": torch.from_numpy(result.success)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy, a batch of demonstrations, and which part is the future."""
    policy = learner.policy.build_policy(0)
    batch = next(batches(learner.policy.windowed_demonstrations(32, seed=45), 32, steps=1, seed=45))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    return {"model": policy, "batch": batch, "optimizer": optimizer, "declare": Declare(future=("state[2:]",))}


def symptom(learner: Any) -> None:
    """Trains the policy, measures it offline and in closed loop: the output of `lab run 45`."""
    print(f"Fine-tuning MotionPolicy from the base, {TRAINING_STEPS} steps\n\n  step    loss")

    def report(step: int, loss: float) -> None:
        if step % 50 == 0 or step == TRAINING_STEPS - 1:
            print(f"  {step:4d}  {loss:6.3f}", flush=True)

    policy, _ = _train(learner, 45, report)
    recorded, _ = _offline_errors(learner, policy, 45)
    result = rollout(policy, episodes=50)
    print(f"\nerror of the next movement on {HELD_OUT} unseen demonstrated frames: {1000 * recorded:.1f} mm\n")
    print(
        f"50 episodes on the robot: {result.success_rate:.0%} success, {result.never_closed_rate:.0%} ran out of time\n"
        f"median distance to the named block at the end {100 * result.final_distance:.0f} cm (closing reaches 7 cm)"
    )


def _train(learner: Any, seed: int, on_step: Any = None) -> tuple[Any, list[float]]:
    policy = learner.policy.build_policy(seed)
    frames = learner.policy.windowed_demonstrations(TRAINING_STEPS * BATCH_SIZE, seed)
    return policy, fit(policy, frames, steps=TRAINING_STEPS, seed=seed, batch_size=BATCH_SIZE, on_step=on_step)


def _offline_errors(learner: Any, policy: Any, seed: int) -> tuple[float, float]:
    """Mean error of the first movement in metres, on unseen frames: with recorded windows, with the robot's."""
    frames = learner.policy.windowed_demonstrations(HELD_OUT, seed + 50_000)
    batch = next(batches(frames, HELD_OUT, steps=1, seed=seed))
    reported = {**batch, "state": batch["state"][:, 1]}
    wanted = batch["action"][:, 0, :2]
    one, other = ((policy.predict(each)[:, 0, :2] - wanted).abs().mean() for each in (batch, reported))
    return float(one), float(other)
