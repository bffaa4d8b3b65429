"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import OBSERVATION_KEYS
from labs.vla.rollout import rollout

BATCH_SIZE = 32
TRAINING_STEPS = 200


def groups(learner: Any, frozen: list[str], seed: int) -> list[dict[str, Any]]:
    """The optimizer's groups: names of their parameters, learning rate and weight decay.

    Parameters whose names begin with one of `frozen` do not require a gradient when the optimizer is built. A tensor
    that is not a parameter of the policy is called `?`.
    """
    policy = learner.policy.build_policy(seed)
    for name, parameter in policy.named_parameters():
        if name.startswith(tuple(frozen)):
            parameter.requires_grad_(False)
    return _groups(learner, policy)


def groups_of_a_larger_policy(learner: Any, added: dict[str, list[int]], seed: int) -> list[dict[str, Any]]:
    """The optimizer's groups, as `groups` returns them, when the policy has more parameters: `added` has their shapes.

    The last module of a parameter's name is created where the policy does not have it.
    """
    policy = learner.policy.build_policy(seed)
    for name, shape in added.items():
        path, _, own = name.rpartition(".")
        parent, _, child = path.rpartition(".")
        if path and not hasattr(policy.get_submodule(parent), child):
            policy.get_submodule(parent).add_module(child, nn.Module())
        policy.get_submodule(path).register_parameter(own, nn.Parameter(torch.zeros(shape)))
    return _groups(learner, policy)


def trainable(learner: Any) -> dict[str, bool]:
    """Which parameters of a fresh policy require a gradient, after its optimizer was built."""
    policy = learner.policy.build_policy(0)
    learner.policy.build_optimizer(policy)
    return {name: parameter.requires_grad for name, parameter in policy.named_parameters()}


def changes_the_mode(learner: Any, function: str) -> bool:
    """Whether that function changes the mode of a policy in training or in evaluation."""
    changed = []
    for mode in (True, False):
        policy = learner.policy.build_policy(0).train(mode)
        getattr(learner.policy, function)(policy)
        changed.append(any(module.training != mode for module in policy.modules()))
    return any(changed)


def training(learner: Any, batch: dict[str, Tensor], seed: int, steps: int) -> dict[str, Any]:
    """`steps` of the learner's own training on one batch, each begun in evaluation mode.

    The losses, the modes of the forward passes, every parameter before and after, and the gradients of the last step.
    """
    policy = learner.policy.build_policy(seed)
    optimizer = learner.policy.build_optimizer(policy)
    before, modes, losses = _values(policy), set(), []
    policy.model.head.register_forward_hook(lambda *_: modes.add(policy.model.training))
    for _ in range(steps):
        policy.eval()
        losses.append(learner.policy.train_step(policy, optimizer, batch))
    gradients = {name: value.grad for name, value in policy.named_parameters() if value.grad is not None}
    return {
        "losses": torch.tensor(losses),
        "modes": sorted(modes),
        "before": before,
        "after": _values(policy),
        "gradients": gradients,
    }


def driven(
    learner: Any, observations: list[dict[str, Tensor]], episodes: list[int], head_scale: float, seed: int
) -> dict[str, Any]:
    """The action for each observation, with `reset` before those numbered in `episodes`; and what the policy returns.

    That is its loss and chunk for the first observation, with and without actions. The weights of the head's last layer
    are multiplied by `head_scale` first.
    """
    policy = learner.policy.build_policy(seed).eval()
    with torch.no_grad():
        policy.model.head.mlp[-1].weight.mul_(head_scale)
    actions = []
    for number, batch in enumerate(observations):
        if number in episodes:
            policy.reset()
        actions.append(policy.select_action({name: batch[name] for name in OBSERVATION_KEYS}))
    with torch.no_grad():
        loss = policy(**observations[0]).loss
        said = policy(**{name: observations[0][name] for name in OBSERVATION_KEYS})
    return {"actions": torch.stack(actions), "loss": loss, "chunk": said.action, "loss without actions": said.loss}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().model.predict(batch)


def overfitted(learner: Any, seed: int, steps: int) -> dict[str, Any]:
    """Train on one batch of demonstrations: the losses (steps,), and how far each part moved, relative to its size."""
    policy = learner.policy.build_policy(seed)
    optimizer = learner.policy.build_optimizer(policy)
    before = {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
    batch = next(batches(demonstrations(BATCH_SIZE, seed), BATCH_SIZE, steps=1, seed=seed))
    losses = [learner.policy.train_step(policy, optimizer, batch) for _ in range(steps)]
    return {"losses": torch.tensor(losses), "moved": _moved(policy, before)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy, a batch of demonstrations, and the learner's own optimizer."""
    policy = learner.policy.build_policy(0)
    batch = next(batches(demonstrations(BATCH_SIZE, seed=14), BATCH_SIZE, steps=1, seed=14))
    return {"model": policy, "batch": batch, "optimizer": learner.policy.build_optimizer(policy)}


def symptom(learner: Any) -> None:
    """Trains, lets the robot act, and varies the backbone's learning rate: what `lab run 14` shows."""
    print(f"Fine-tuning, {TRAINING_STEPS} steps\n")
    policy = learner.policy.build_policy(14)
    optimizer = learner.policy.build_optimizer(policy)
    before = {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
    print("  step    loss")
    frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, 14)
    for step, batch in enumerate(batches(frames, BATCH_SIZE, TRAINING_STEPS, seed=14)):
        loss = learner.policy.train_step(policy, optimizer, batch)
        if step % 50 == 0 or step == TRAINING_STEPS - 1:
            print(f"  {step:4d}  {loss:6.3f}", flush=True)
    result = rollout(policy.model, episodes=50)
    print(f"\n50 episodes: {result.success_rate:.0%} success, {result.never_closed_rate:.0%} never closed the gripper")
    print("\nHow far training moved each part, relative to its size:")
    for part, distance in _moved(policy, before).items():
        print(f"  {part:<15} {distance:8.2%}")
    print("\nThe backbone's learning rate, and the loss after 10 steps on one batch:")
    batch = next(batches(frames, BATCH_SIZE, 1, seed=14))
    for rate in (0.0, 5e-4, 5e-2):
        print(f"  {rate:6g}   {_loss_at_rate(learner, rate, batch):.9f}")


def _groups(learner: Any, policy: Any) -> list[dict[str, Any]]:
    names = {id(parameter): name for name, parameter in policy.named_parameters()}
    return [
        {
            "names": [names.get(id(parameter), "?") for parameter in group["params"]],
            "lr": float(group["lr"]),
            "weight_decay": float(group["weight_decay"]),
        }
        for group in learner.policy.build_optimizer(policy).param_groups
    ]


def _loss_at_rate(learner: Any, rate: float, batch: dict[str, Tensor]) -> float:
    shipped = learner.policy.BACKBONE_LEARNING_RATE
    learner.policy.BACKBONE_LEARNING_RATE = rate
    try:
        policy = learner.policy.build_policy(14)
        optimizer = learner.policy.build_optimizer(policy)
        return [learner.policy.train_step(policy, optimizer, batch) for _ in range(11)][-1]
    finally:
        learner.policy.BACKBONE_LEARNING_RATE = shipped


def _moved(policy: Any, before: dict[str, Tensor]) -> dict[str, float]:
    """How far each part has moved, relative to its size."""
    pairs: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for name, parameter in policy.named_parameters():
        part = name.removeprefix("model.").partition(".")[0]
        pairs.setdefault(part, []).append((parameter.detach() - before[name], before[name]))
    return {part: _norm([d for d, _ in own]) / _norm([b for _, b in own]) for part, own in pairs.items()}


def _values(policy: Any) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}


def _norm(tensors: list[Tensor]) -> float:
    return float(torch.cat([tensor.flatten() for tensor in tensors]).norm())
