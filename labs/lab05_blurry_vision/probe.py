"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.vla.dataset import batches, demonstrations
from labs.vla.rollout import rollout
from labs.vla.training import fit

BATCH_SIZE, LEARNING_RATE = 32, 2e-3
SYMPTOM_STEPS, OUTCOME_STEPS = 120, 80


def pyramid(learner: Any, patches: Tensor, size: list[int], seed: int) -> dict[str, Any]:
    """The output of a pyramid with random weights for patches (B, P, V), and the weights."""
    module = _random_pyramid(learner, patches.shape[-1], seed)
    with torch.no_grad():
        output = module(patches, tuple(size))
    return {"output": output, "weights": dict(module.state_dict())}


def perturbed(learner: Any, patches: Tensor, size: list[int], noise: Tensor, seed: int) -> dict[str, Tensor]:
    """The pyramid's output, without and with `noise` (B, V, h, w) added to the output of the detail path."""
    module = _random_pyramid(learner, patches.shape[-1], seed)
    with torch.no_grad():
        before = module(patches, tuple(size))
        handle = module.detail.register_forward_hook(lambda _, __, output: output + noise)
        after = module(patches, tuple(size))
        handle.remove()
    return {"before": before, "after": after}


def hooked(learner: Any, patches: Tensor, size: list[int], upstream: Tensor, seed: int) -> dict[str, Any]:
    """What hooks record when `upstream` (B, P, V) is the gradient of the pyramid's output.

    The shape of the detail path's output, its gradient, and the names of all parameters without a gradient.
    """
    module = _random_pyramid(learner, patches.shape[-1], seed)
    seen: dict[str, Any] = {"shape": None, "gradient": None}

    def after(_module: Any, _inputs: Any, output: Tensor) -> None:
        seen["shape"] = list(output.shape)
        output.register_hook(lambda gradient: seen.update(gradient=gradient.clone()))

    handle = module.detail.register_forward_hook(after)
    module(patches.clone().requires_grad_(), tuple(size)).backward(upstream)
    handle.remove()
    seen["without"] = [name for name, value in module.named_parameters() if value.grad is None]
    return seen


def fresh(learner: Any, patches: Tensor, size: list[int], seed: int) -> Tensor:
    """The output of a newly built pyramid for patches (B, P, V)."""
    torch.manual_seed(seed)
    with torch.no_grad():
        return learner.policy.PatchPyramid(patches.shape[-1])(patches, tuple(size))


def trainable(learner: Any) -> dict[str, int]:
    """The number of trainable values in each part of a fresh pyramid."""
    counts: dict[str, int] = {}
    for name, value in learner.policy.build_policy(0).pyramid.named_parameters():
        part = name.partition(".")[0]
        counts[part] = counts.get(part, 0) + value.numel() * value.requires_grad
    return counts


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def held_out_loss(learner: Any, seed: int) -> float:
    """The loss on held-out frames, after a short training."""
    policy, _ = _train(learner, seed, OUTCOME_STEPS)
    batch = next(batches(demonstrations(256, seed + 1), 256, steps=1, seed=seed))
    with torch.no_grad():
        return float(policy(**batch).loss)


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of demonstrations."""
    policy = learner.policy.build_policy(0)
    batch = next(batches(demonstrations(16, seed=5), 16, steps=1, seed=5))
    return {"model": policy, "batch": batch, "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3)}


def symptom(learner: Any) -> None:
    """Trains the policy and lets it act: what `lab run 05` shows."""
    print(f"Training the policy with the pyramid, {SYMPTOM_STEPS} steps\n\n  step    loss")
    policy, losses = _train(learner, 5, SYMPTOM_STEPS)
    for step in (*range(0, SYMPTOM_STEPS, 20), SYMPTOM_STEPS - 1):
        window = losses[max(0, step - 4) : step + 5]
        print(f"  {step:4d}  {sum(window) / len(window):6.3f}")
    result = rollout(policy, episodes=50)
    print(
        f"\n50 episodes: {result.success_rate:.0%} success, {result.never_closed_rate:.0%} never closed the gripper\n"
        f"median distance to the named block at the end {100 * result.final_distance:.0f} cm (closing reaches 7 cm)"
    )


def _train(learner: Any, seed: int, steps: int) -> tuple[Any, list[float]]:
    policy = learner.policy.build_policy(seed)
    frames = demonstrations(steps * BATCH_SIZE, seed)
    losses = fit(policy, frames, steps=steps, seed=seed, batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE)
    return policy, losses


def _random_pyramid(learner: Any, width: int, seed: int) -> Any:
    """A pyramid with random weights, so that no path is an identity or close to zero."""
    torch.manual_seed(seed)
    module = learner.policy.PatchPyramid(width)
    with torch.no_grad():
        for value in module.parameters():
            value.normal_(std=0.5)
    return module.eval()
