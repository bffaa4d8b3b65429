"""What the grader and `lab run` measure. Runs with the learner's code, in the sandboxed child."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from labs.vla.dataset import batches, demonstrations
from labs.vla.rollout import rollout

BATCH_SIZE = 32
TRAINING_STEPS = 160
WATCHED = ("head.mlp.2.weight", "head.mlp.0.bias", "projector.0.weight", "vision.embeddings.patch_embedding.weight")
"""Parameters whose gradients are returned: two of the head, two below it."""


def settings(learner: Any) -> list[dict[str, Any]]:
    """The groups of the learner's optimizer: names of their parameters, and AdamW's settings."""
    policy = learner.policy.build_policy(0)
    names = {id(parameter): name for name, parameter in policy.named_parameters()}
    return [
        {
            "names": [names.get(id(parameter), "?") for parameter in group["params"]],
            "lr": float(group["lr"]),
            "betas": [float(beta) for beta in group["betas"]],
            "weight_decay": float(group["weight_decay"]),
        }
        for group in learner.policy.build_optimizer(policy).param_groups
    ]


def changes_the_mode(learner: Any, batch: dict[str, Tensor]) -> list[str]:
    """Which of two functions change the mode of a policy in training or in evaluation."""
    changed = []
    for mode in (True, False):
        policy = learner.policy.build_policy(0).train(mode)
        learner.policy.build_optimizer(policy)
        changed += ["build_optimizer"] * (policy.training != mode)
        policy.train(mode)
        learner.policy.head_loss(policy, batch)
        changed += ["head_loss"] * (policy.training != mode)
    return sorted(set(changed))


def gradients_at_each_step(
    learner: Any, stream: list[dict[str, Tensor]], seed: int, head_steps: int, louder: float
) -> dict[str, Any]:
    """Run the learner's training on `stream`: for each optimizer step, the gradients it used and freshly computed ones.

    `used` and `fresh` hold one dict per step, keyed by the WATCHED names, with None where there is no gradient. The
    fresh gradients are those of the whole loss on the step's own batch, at the same weights. `used_norm` is over all
    parameters; `optimizers` counts the optimizers that stepped, `backward` the backward passes through the head.
    """
    policy = _loud(learner, seed, louder)
    optimizer = learner.policy.build_optimizer(policy)
    used: list[dict[str, Tensor | None]] = []
    fresh: list[dict[str, Tensor | None]] = []
    norms: list[float] = []
    stepped: list[Any] = []
    backward: list[None] = []

    def note(stepping: Any, *_: Any) -> None:
        own = dict(policy.named_parameters())
        used.append({name: _copied(own[name].grad) for name in WATCHED})
        grads = [p.grad.flatten() for p in own.values() if p.grad is not None]
        norms.append(float(torch.cat(grads).norm()) if grads else 0.0)
        if len(used) <= len(stream):
            fresh.append(_fresh_gradients(policy, stream[len(used) - 1]))
        if not any(stepping is other for other in stepped):
            stepped.append(stepping)

    policy.head.mlp[-1].weight.register_post_accumulate_grad_hook(lambda _: backward.append(None))
    handle = register_optimizer_step_pre_hook(note)
    try:
        learner.policy.train(policy, optimizer, iter(stream), head_steps)
    finally:
        handle.remove()
    return {
        "used": used,
        "fresh": fresh,
        "used_norm": norms,
        "optimizers": len(stepped),
        "backward": len(backward),
    }


def trained(
    learner: Any, stream: list[dict[str, Tensor]], seed: int, head_steps: int | None, training: bool, louder: float = 1
) -> dict[str, Any]:
    """Run the learner's training: every parameter before and after, the log, the modes, and the stream after training.

    `head_steps` of None leaves the default. `training` is the policy's mode before training.
    """
    policy = _loud(learner, seed, louder).train(training)
    optimizer = learner.policy.build_optimizer(policy)
    before, modes = _values(policy), set()
    policy.head.register_forward_hook(lambda *_: modes.add(policy.training))
    arguments = () if head_steps is None else (head_steps,)
    log = learner.policy.train(policy, optimizer, iter(stream), *arguments)
    return {
        "before": before,
        "after": _values(policy),
        "steps": [line.step for line in log],
        "phases": [line.phase for line in log],
        "losses": torch.tensor([line.loss for line in log]),
        "norms": torch.tensor([line.gradient_norm for line in log]),
        "modes": sorted(modes),
        "mode after": policy.training,
        "stream": stream,
    }


def trained_again(learner: Any, stream: list[dict[str, Tensor]], seed: int) -> dict[str, Any]:
    """Train everything, then the head alone with the same optimizer: all parameters before and after the second run."""
    policy = learner.policy.build_policy(seed)
    optimizer = learner.policy.build_optimizer(policy)
    learner.policy.train(policy, optimizer, stream, 0)
    before = _values(policy)
    learner.policy.train(policy, optimizer, stream, len(stream))
    return {"before": before, "after": _values(policy)}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a newly built policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def overfitted(learner: Any, seed: int, head_steps: int, steps: int) -> Tensor:
    """The losses (steps,) of training repeatedly on one batch of demonstrations."""
    policy = learner.policy.build_policy(seed)
    batch = next(batches(demonstrations(BATCH_SIZE, seed), BATCH_SIZE, steps=1, seed=seed))
    log = learner.policy.train(policy, learner.policy.build_optimizer(policy), [batch] * steps, head_steps)
    return torch.tensor([line.loss for line in log])


def subject(learner: Any) -> dict[str, Any]:
    """debugkit's arguments: a newly built policy, a batch, its optimizer, and a short run of the learner's loop."""
    policy = learner.policy.build_policy(0)
    optimizer = learner.policy.build_optimizer(policy)
    stream = list(batches(demonstrations(8 * BATCH_SIZE, seed=51), BATCH_SIZE, steps=8, seed=51))

    def loop() -> None:
        learner.policy.train(policy, optimizer, stream, head_steps=2)

    return {"model": policy, "batch": stream[0], "optimizer": optimizer, "loop": loop}


def symptom(learner: Any) -> None:
    """Train in two phases, then roll the policy out: what `lab run 51` shows."""
    policy = learner.policy.build_policy(51)
    optimizer = learner.policy.build_optimizer(policy)
    frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, 51)
    log = learner.policy.train(policy, optimizer, batches(frames, BATCH_SIZE, TRAINING_STEPS, seed=51))
    print("  step  phase     loss  gradient norm")
    for line in log[::20] + log[-1:]:
        print(line)
    result = rollout(policy, episodes=50)
    print(f"\n50 episodes: {result.success_rate:.0%} success, {result.never_closed_rate:.0%} never closed the gripper")


def _loud(learner: Any, seed: int, louder: float) -> Any:
    policy = learner.policy.build_policy(seed)
    with torch.no_grad():
        policy.head.mlp[-1].weight.mul_(louder)
    return policy


def _fresh_gradients(policy: Any, batch: dict[str, Tensor]) -> dict[str, Tensor | None]:
    twin = copy.deepcopy(policy)
    for parameter in twin.parameters():
        parameter.grad = None
    with torch.enable_grad():
        twin(**batch).loss.backward()
    own = dict(twin.named_parameters())
    return {name: _copied(own[name].grad) for name in WATCHED}


def _copied(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else gradient.detach().clone()


def _values(policy: Any) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
