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


def gradients_at_each_step(learner: Any, stream: list[dict[str, Tensor]], seed: int, head_steps: int) -> dict[str, Any]:
    """Run the learner's training on `stream`: for each optimizer step, the gradients it used and freshly computed ones.

    `used` and `fresh` hold one dict per step, keyed by the WATCHED names, with None where there is no gradient. The
    fresh gradients are those of the whole loss on the step's own batch, at the same weights. `used_norm` is over all
    parameters; `optimizers` counts the optimizers that stepped.
    """
    policy = learner.policy.build_policy(seed)
    optimizer = learner.policy.build_optimizer(policy)
    used: list[dict[str, Tensor | None]] = []
    fresh: list[dict[str, Tensor | None]] = []
    norms: list[float] = []
    stepped: list[Any] = []

    def note(stepping: Any, *_: Any) -> None:
        own = dict(policy.named_parameters())
        used.append({name: _copied(own[name].grad) for name in WATCHED})
        grads = [p.grad.flatten() for p in own.values() if p.grad is not None]
        norms.append(float(torch.cat(grads).norm()) if grads else 0.0)
        if len(used) <= len(stream):
            fresh.append(_fresh_gradients(policy, stream[len(used) - 1]))
        if not any(stepping is other for other in stepped):
            stepped.append(stepping)

    handle = register_optimizer_step_pre_hook(note)
    try:
        learner.policy.train(policy, optimizer, stream, head_steps)
    finally:
        handle.remove()
    return {"used": used, "fresh": fresh, "used_norm": norms, "optimizers": len(stepped)}


def trained(learner: Any, stream: list[dict[str, Tensor]], seed: int, head_steps: int) -> dict[str, Any]:
    """Run the learner's training: every parameter before and after, the log, and the stream after training."""
    policy = learner.policy.build_policy(seed)
    optimizer = learner.policy.build_optimizer(policy)
    before = _values(policy)
    log = learner.policy.train(policy, optimizer, stream, head_steps)
    return {
        "before": before,
        "after": _values(policy),
        "losses": torch.tensor([line.loss for line in log]),
        "norms": torch.tensor([line.gradient_norm for line in log]),
        "stream": stream,
    }


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
