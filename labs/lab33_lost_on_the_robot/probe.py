"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.dataset import Batch, Frames, demonstrations, observation_batch

FRAMES, STEPS, LEARNING_RATE = 32, 80, 2e-3
ROBOT_WIDTH = 48
"""Tokens to which the robot pads an instruction, as lerobot's π0 does: its graph is compiled for one shape."""
HALF_A_BIN = torch.tensor([0.0016, 0.0016, 0.016])


def training_step(learner: Any, batch: Batch, training: bool, seed: int) -> dict[str, Any]:
    """The loss of a fresh policy, its logits (B, 3, bins), the gradients, and the passes of the language model."""
    policy = learner.policy.build_policy(seed).train(training)
    passes, handle = _passes(policy)
    output = policy(**batch)
    handle.remove()
    output.loss.backward()
    gradients = {name: value.grad for name, value in policy.named_parameters() if value.grad is not None}
    return {"loss": output.loss.detach(), "logits": output.logits.detach(), "gradients": gradients, "passes": passes}


def trimmed_loss(learner: Any, batch: Batch, training: bool, seed: int) -> dict[str, Any]:
    """What `trim` makes of a batch, and its loss by a fresh policy.

    And the loss by which the policy is trained on the whole batch, its passes, and the policy's mode after it.
    """
    policy = learner.policy.build_policy(seed).train(training)
    trimmed = learner.policy.trim(batch)
    passes, handle = _passes(policy)
    loss = learner.policy.training_loss(policy, batch)
    handle.remove()
    return {
        "trimmed": trimmed,
        "loss_of_trimmed": policy(**trimmed).loss.detach(),
        "loss": loss.detach(),
        "passes": passes,
        "training": policy.training,
    }


def generated(learner: Any, observation: Batch, weight: Tensor, use_cache: bool | None, seed: int) -> dict[str, Any]:
    """Tokens (B, 3) and action of a policy whose head ends with `weight`, and the passes for each of the two.

    Without `use_cache`, as by default.
    """
    asked = {} if use_cache is None else {"use_cache": use_cache}
    policy = learner.policy.build_policy(seed).eval()
    with torch.no_grad():
        policy.head.mlp[-1].weight.copy_(weight)
    passes, handle = _passes(policy)
    tokens = policy.generate(observation, **asked)
    own, handle = _passes(policy, handle)
    action = policy.predict(observation, **asked)
    handle.remove()
    return {"tokens": tokens, "action": action, "passes": passes, "passes_of_predict": own}


def stored(learner: Any, seed: int) -> dict[str, Tensor]:
    """The checkpoint of a fresh policy."""
    return dict(learner.policy.build_policy(seed).state_dict())


def memorised(learner: Any, seed: int) -> dict[str, Tensor]:
    """After many steps on one batch: the demonstrated actions (N, 3), and what is predicted for the same frames."""
    frames = demonstrations(FRAMES, seed, horizon=1)
    policy, _ = _memorise(learner, frames, seed)
    return {"wanted": _first_actions(frames), **_predictions(learner, policy, frames)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch whose instructions differ in length."""
    policy = learner.policy.build_policy(0)
    return {
        "model": policy,
        "batch": learner.policy.trim(_batch(demonstrations(FRAMES, seed=3, horizon=1))),
        "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3),
    }


def symptom(learner: Any) -> None:
    """Memorises a batch, and asks for the same frames in three ways: the output of `lab run 33`."""
    print(f"Memorising {FRAMES} demonstrations, {STEPS} steps\n\n  step    loss")
    frames = demonstrations(FRAMES, 33, horizon=1)
    policy, losses = _memorise(learner, frames, 33)
    for step in (0, 20, 40, 60, STEPS - 1):
        print(f"  {step:4d}  {losses[step]:6.3f}")
    print("\nThe same frames again, tokens as demonstrated      dx     dy   gripper   all three")
    wanted = _first_actions(frames)
    names = {"together": "all in one batch", "alone": "one at a time", "robot": "by the robot"}
    for name, action in _predictions(learner, policy, frames).items():
        right = (action - wanted).abs() <= HALF_A_BIN
        dx, dy, gripper = right.double().mean(dim=0).tolist()
        every = float(right.all(dim=1).double().mean())
        print(f"  {names[name]:43} {dx:7.0%} {dy:6.0%} {gripper:9.0%} {every:11.0%}")


def _memorise(learner: Any, frames: Frames, seed: int) -> tuple[Any, list[float]]:
    policy, batch = learner.policy.build_policy(seed), _batch(frames)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95))
    losses = []
    policy.train()
    for _ in range(STEPS):
        loss = learner.policy.training_loss(policy, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return policy.eval(), losses


def _predictions(learner: Any, policy: Any, frames: Frames) -> dict[str, Tensor]:
    """The actions (N, 3) for the same frames: in one batch, one at a time, and one at a time as the robot pads them."""
    together, wide = _batch(frames), _batch(frames, ROBOT_WIDTH)
    trim = learner.policy.trim
    return {
        "together": policy.predict(trim(together))[:, 0],
        "alone": torch.cat([policy.predict(trim(row))[:, 0] for row in _rows(together)]),
        "robot": torch.cat([policy.predict(row)[:, 0] for row in _rows(wide)]),
    }


def _batch(frames: Frames, width: int = 8) -> Batch:
    """The frames as a batch whose instructions are padded to `width` tokens."""
    batch = observation_batch(frames.image, frames.state, frames.instruction, length=width)
    return {**batch, "action": torch.from_numpy(frames.action)}


def _rows(batch: Batch) -> list[Batch]:
    return [{name: value[row : row + 1] for name, value in batch.items()} for row in range(len(batch["state"]))]


def _first_actions(frames: Frames) -> Tensor:
    return torch.from_numpy(frames.action[:, 0])


def _passes(policy: Any, before: Any = None) -> tuple[list[dict[str, Any]], Any]:
    """A list to which each pass of the language model adds its rows, its positions and whether it recorded a graph.

    And the hook that does it, instead of the one from `before`.
    """
    if before is not None:
        before.remove()
    passes: list[dict[str, Any]] = []

    def look(_module: Any, _inputs: Any, output: Any) -> None:
        hidden = output.last_hidden_state
        passes.append({"rows": hidden.shape[0], "positions": hidden.shape[1], "graph": hidden.requires_grad})

    return passes, policy.language_model.register_forward_hook(look)
