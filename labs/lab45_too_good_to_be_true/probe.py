"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from debugkit import Declare
from labs.vla.dataset import batches
from labs.vla.policy import OBSERVATION_KEYS
from labs.vla.rollout import rollout
from labs.vla.training import fit

BATCH_SIZE = 64
TRAINING_STEPS = 150
HELD_OUT = 256


def actions(learner: Any, batch: dict[str, Tensor], others: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """The chunk (B, H, 3) that a fresh policy predicts for `batch` ("as recorded") and each of the other windows."""
    policy = learner.policy.build_policy(seed).eval()
    windows = {"as recorded": batch["state"], **others}
    return {name: policy.predict({**batch, "state": state}) for name, state in windows.items()}


def given_states(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Tensor | None]:
    """The position (B, 3) and the motion (B, 2) that a fresh policy in training mode gives to its layers."""
    policy = learner.policy.build_policy(seed).train()
    seen: dict[str, Tensor | None] = {"position": None, "motion": None}
    for name, layer in {"position": policy.proprioception, "motion": policy.motion}.items():
        layer.register_forward_pre_hook(lambda _, given, name=name: seen.update({name: given[0].detach().clone()}))
    with torch.no_grad():
        policy(**batch)
    return seen


def computed(
    learner: Any, parameters: dict[str, Tensor], batch: dict[str, Tensor], others: dict[str, Tensor], training: bool
) -> dict[str, Any]:
    """What a policy with these parameters computes: chunks, losses and the gradients of the first loss.

    `said` is the chunk by the policy itself, `predicted` by `predict`, `robot` from the present state alone, and
    `robot window` from `robot_window`. `loss of …` is with each of `others` as the windows, and `elsewhere` without
    `action_is_pad`, where new tensors are on the meta device by default.
    """
    policy = learner.policy.build_policy(0).train(training)
    policy.load_state_dict(parameters)
    loss = policy(**batch).loss
    loss.backward()
    observed = {name: batch[name] for name in OBSERVATION_KEYS}
    unpadded = {name: value for name, value in batch.items() if name != "action_is_pad"}
    present = batch["state"][:, 1]
    with torch.no_grad():
        with torch.device("meta"):
            elsewhere = policy(**unpadded).loss
        found = {f"loss of {name}": policy(**{**batch, "state": state}).loss for name, state in others.items()}
        said = policy(**observed)
    return {
        "loss": loss,
        "again": policy(**batch).loss.detach(),
        "gradients": {name: value.grad for name, value in policy.named_parameters() if value.grad is not None},
        "elsewhere": elsewhere,
        "said": said.action,
        "loss without actions": said.loss,
        "predicted": policy.predict({**observed, "action": torch.full_like(batch["action"], torch.nan)}),
        "robot": policy.predict({**observed, "state": present}),
        "window": learner.policy.robot_window(present),
        "robot window": policy.predict({**observed, "state": learner.policy.robot_window(present)}),
        **found,
    }


def built(learner: Any, seed: int) -> dict[str, Tensor]:
    """Every parameter of a fresh policy."""
    return {name: value.detach() for name, value in learner.policy.build_policy(seed).named_parameters()}


def recorded(learner: Any, count: int, seed: int) -> dict[str, Any]:
    """The fields of windowed demonstrations as tensors or plain data, and the offsets of the windows."""
    frames = learner.policy.windowed_demonstrations(count, seed)
    return {"offsets": list(learner.policy.STATE_OFFSETS)} | {
        field.name: _plain(getattr(frames, field.name)) for field in fields(frames)
    }


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


def _plain(value: Any) -> Any:
    is_number = isinstance(value, np.ndarray) and value.dtype.kind in "fiub"
    return torch.from_numpy(value) if is_number else [str(one) for one in value]


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
