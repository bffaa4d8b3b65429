"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.vla.dataset import batches, observation_batch
from labs.vla.policy import PolicyConfig
from labs.vla.tabletop import Tabletop, stack_observations
from labs.vla.training import fit, overfit

BATCH_SIZE = 32
SHOWN_STEPS = 4


def there_and_back(
    learner: Any, demonstrated: Tensor, action_is_pad: Tensor, action: Tensor, training: bool = False
) -> dict[str, Tensor]:
    """With the bounds of `demonstrated` (N, H, A): `action` (..., A) normalised, and that result unnormalised."""
    normaliser = _fitted(learner, demonstrated, action_is_pad).train(training)
    normalised = normaliser.normalise(action)
    return {"normalised": normalised, "returned": normaliser.unnormalise(normalised)}


def brought_back(learner: Any, demonstrated: Tensor, action_is_pad: Tensor, normalised: Tensor) -> Tensor:
    """With the bounds of `demonstrated` (N, H, A): `unnormalise` applied to `normalised` (..., A)."""
    return _fitted(learner, demonstrated, action_is_pad).eval().unnormalise(normalised)


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


def built(learner: Any, count: int, seed: int, normalised: Tensor) -> dict[str, Any]:
    """The demonstrations, and what `build_policy` makes of them: its weights, and `normalised` (M, A) unnormalised.

    The latter, and that result normalised again, also by another policy that has loaded its checkpoint.
    """
    frames = learner.policy.wrist_demonstrations(count, seed)
    policy = learner.policy.build_policy(frames, seed)
    loaded = learner.policy.WristPolicy(policy.config)
    loaded.load_state_dict(policy.state_dict())
    return {
        "dimensions": list(learner.policy.DIMENSIONS),
        "frames": {
            name: torch.from_numpy(getattr(frames, name)) for name in ("image", "state", "action", "action_is_pad")
        },
        "instructions": list(frames.instruction),
        "weights": {name: value for name, value in policy.state_dict().items() if not name.startswith("normaliser.")},
        "unnormalised": policy.normaliser.unnormalise(normalised),
        "unnormalised when loaded": loaded.normaliser.unnormalise(normalised),
        "normalised": policy.normaliser.normalise(policy.normaliser.unnormalise(normalised)),
        "normalised when loaded": loaded.normaliser.normalise(policy.normaliser.unnormalise(normalised)),
    }


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy with the batch's bounds predicts in evaluation mode, (B, H, A)."""
    return _policy(learner, batch, seed).eval().predict(batch)


def overfitted(learner: Any, seed: int, steps: int) -> dict[str, Any]:
    """Losses of training on one batch of the wrist robot's demonstrations, and the predicted and demonstrated chunk."""
    frames = learner.policy.wrist_demonstrations(256, seed)
    policy = learner.policy.build_policy(frames, seed)
    batch = next(batches(frames, BATCH_SIZE, steps=1, seed=seed))
    losses = overfit(policy, batch, steps, seed=seed)
    return {"losses": losses, "action": policy.predict(batch), "wanted": batch["action"]}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of demonstrations."""
    frames = learner.policy.wrist_demonstrations(512, seed=21)
    policy = learner.policy.build_policy(frames, 0)
    batch = next(batches(frames, BATCH_SIZE, steps=1, seed=21))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    return {"model": policy, "batch": batch, "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """Trains the wrist robot's policy for a few steps and predicts one action: the output of `lab run 21`."""
    frames = learner.policy.wrist_demonstrations(2000, seed=21)
    policy = learner.policy.build_policy(frames, 21)
    print("Fine-tuning WristPolicy from the base: dx, dy, wrist, gripper\n\n  step    loss   weights that are NaN")

    def report(step: int, loss: float) -> None:
        if step < SHOWN_STEPS or step % 20 == 19:
            numbers = torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])
            print(f"  {step:4d}  {loss:6.3f}   {int(numbers.isnan().sum()):,} of {numbers.numel():,}", flush=True)

    fit(policy, frames, steps=40, seed=21, batch_size=BATCH_SIZE, on_step=report)
    observation, _ = Tabletop().reset(seed=10_000)
    [first, *_] = policy.predict(observation_batch(**stack_observations([observation])))[0]
    print("\nThe first action on the robot:")
    for name, value in zip(learner.policy.DIMENSIONS, first.tolist(), strict=True):
        print(f"  {name:<8} {value:7.3f}")


def _fitted(learner: Any, demonstrated: Tensor, action_is_pad: Tensor) -> Any:
    """A normaliser fitted to others before, in the first of which no joint moves; their bounds must be replaced."""
    normaliser = learner.policy.RangeNormaliser(demonstrated.shape[-1])
    normaliser.fit(demonstrated[~action_is_pad][0].expand_as(demonstrated), action_is_pad)
    normaliser.fit(3 * demonstrated - 1, action_is_pad)
    normaliser.fit(demonstrated, action_is_pad)
    return normaliser


def _policy(learner: Any, batch: dict[str, Tensor], seed: int) -> Any:
    policy = learner.policy.WristPolicy.from_base(PolicyConfig(action_dim=batch["action"].shape[-1]), seed=seed)
    policy.normaliser.fit(batch["action"], batch["action_is_pad"])
    return policy
