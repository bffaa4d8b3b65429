"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.dataset import batches, demonstrations
from labs.vla.rollout import rollout
from labs.vla.training import fit

BATCH_SIZE, LEARNING_RATE = 32, 2e-3
SYMPTOM_STEPS, OUTCOME_STEPS = 120, 80


def pyramid(learner: Any, weights: dict[str, Tensor], patches: Tensor, size: list[int], training: bool) -> Tensor:
    """The output of a pyramid with these weights for patches (B, P, V)."""
    module = _pyramid(learner, weights, patches.shape[-1]).train(training)
    with torch.set_grad_enabled(training):
        return module(patches, tuple(size))


def differentiated(
    learner: Any, weights: dict[str, Tensor], patches: Tensor, size: list[int], upstream: Tensor
) -> dict[str, Any]:
    """The gradients of a pyramid's parameters, of its patches, and of the detail path's output.

    `upstream` (B, P, V) is the gradient of the pyramid's output.
    """
    module = _pyramid(learner, weights, patches.shape[-1])
    seen: dict[str, Any] = {"detail": None}

    def after(_module: Any, _inputs: Any, output: Tensor) -> None:
        output.register_hook(lambda gradient: seen.update(detail=gradient.clone()))

    handle = module.detail.register_forward_hook(after)
    module(patches.requires_grad_(), tuple(size)).backward(upstream)
    handle.remove()
    seen["parameters"] = {name: value.grad for name, value in module.named_parameters() if value.grad is not None}
    return {**seen, "patches": patches.grad}


def fresh(learner: Any, patches: Tensor, size: list[int], seed: int) -> dict[str, Any]:
    """The output of a newly built pyramid for patches (B, P, V), its parameters, and which of them train."""
    torch.manual_seed(seed)
    module = learner.policy.PatchPyramid(patches.shape[-1])
    with torch.no_grad():
        output = module(patches, tuple(size))
    trains = [name for name, value in module.named_parameters() if value.requires_grad]
    return {"output": output, "parameters": dict(module.state_dict()), "trains": trains}


def embedded(learner: Any, pixel_values: Tensor, patches: Tensor, seed: int) -> dict[str, Tensor]:
    """What a policy makes of images (B, 3, H, W) for which the vision tower gives `patches` (B, P, V).

    Also its pyramid's and its projector's parameters.
    """
    policy = learner.policy.build_policy(seed)
    policy.vision = _Tower(patches)
    with torch.no_grad():
        images = policy.embed_images(pixel_values)
    return {
        "images": images,
        **{f"pyramid.{name}": value for name, value in policy.pyramid.state_dict().items()},
        **{f"projector.{name}": value for name, value in policy.projector.state_dict().items()},
    }


def idle(learner: Any, batch: dict[str, Tensor], seed: int) -> list[str]:
    """The weights of a fresh policy to which a loss gives no gradient, or one of zero."""
    policy = learner.policy.build_policy(seed)
    policy(**batch).loss.backward()
    weights = {name: value for name, value in policy.named_parameters() if name.endswith("weight")}
    return [name for name, value in weights.items() if value.grad is None or not value.grad.any()]


def built(learner: Any, seed: int) -> dict[str, Tensor]:
    """Every parameter of a fresh policy."""
    return {name: value.detach() for name, value in learner.policy.build_policy(seed).named_parameters()}


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


def _pyramid(learner: Any, weights: dict[str, Tensor], width: int) -> Any:
    module = learner.policy.PatchPyramid(width)
    module.load_state_dict(weights)
    return module


class _Tower(nn.Module):
    """Stands in for the vision tower: gives the same patches for any image."""

    def __init__(self, patches: Tensor) -> None:
        super().__init__()
        self.patches = patches

    def forward(self, pixel_values: Tensor) -> Any:
        return SimpleNamespace(last_hidden_state=self.patches[: len(pixel_values)])
