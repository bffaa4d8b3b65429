"""Measures the learner's patches and policy for the grader and `lab run`; runs with the learner's code, sandboxed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labs.vla.dataset import Frames, batches, demonstrations
from labs.vla.policy import PolicyConfig
from labs.vla.rollout import rollout
from labs.vla.tabletop import TABLE_RGB
from labs.vla.training import fit

BATCH_SIZE, STEPS = 32, 150


def patches(learner: Any, images: Tensor, size: int) -> Any:
    """The rows for images (B, C, H, W)."""
    return learner.policy.patchify(images, size)


def refusal(learner: Any, height: int, width: int, size: int) -> str:
    """The name of the exception for an image of this size, or "none"."""
    try:
        learner.policy.patchify(torch.zeros(1, 3, height, width), size)
    except Exception as error:
        return type(error).__name__
    return "none"


def positions(learner: Any, table: Tensor, grid: list[int]) -> Any:
    """The position table for another grid."""
    return learner.policy.resized_positions(table, tuple(grid))


def embedded(learner: Any, weights: dict[str, Tensor], pixel_values: Tensor, sizes: dict[str, int]) -> Tensor:
    """What a policy of these sizes, with these weights, makes of images (B, 3, H, W)."""
    policy = learner.policy.AnyShapePolicy(PolicyConfig(**sizes)).eval()
    policy.load_state_dict(weights)
    with torch.no_grad():
        return policy.embed_images(pixel_values)


def gradients(learner: Any, batch: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """The gradients of a fresh policy's parameters and of the images after the backward pass of one batch, by name."""
    policy = learner.policy.build_policy(seed).train()
    policy(**{**batch, "pixel_values": batch["pixel_values"].requires_grad_()}).loss.backward()
    everything = {**dict(policy.named_parameters()), "the images": batch["pixel_values"]}
    return {name: value.grad for name, value in everything.items() if value.grad is not None}


def built(learner: Any, seed: int) -> dict[str, Tensor]:
    """Every parameter of a fresh policy."""
    return {name: value.detach() for name, value in learner.policy.build_policy(seed).named_parameters()}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def trained_success(learner: Any, seed: int, episodes: int) -> Tensor:
    """Which episodes (N,) succeed after a short training."""
    policy, _ = _train(learner, demonstrations(STEPS * BATCH_SIZE, seed), seed)
    return torch.from_numpy(rollout(policy, episodes=episodes, first_seed=500_000 + seed).success)


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of demonstrations."""
    policy = learner.policy.build_policy(0)
    batch = next(batches(demonstrations(16, seed=7), 16, steps=1, seed=7))
    return {"model": policy, "batch": batch, "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3)}


def symptom(learner: Any) -> None:
    """Trains the policy with its camera and with a covered one, and lets the first act: what `lab run 07` shows."""
    print(f"Training the policy {STEPS} steps, and again with the lens cap on\n\n  step    loss   cap on")
    frames = demonstrations(STEPS * BATCH_SIZE, 7)
    policy, losses = _train(learner, frames, 7)
    _, in_the_dark = _train(learner, _covered(frames), 7)
    for step in (*range(0, STEPS, 30), STEPS - 1):
        around = slice(max(0, step - 4), step + 5)
        print(f"  {step:4d}  {np.mean(losses[around]):6.3f}  {np.mean(in_the_dark[around]):6.3f}")
    result = rollout(policy, episodes=50)
    print(
        f"\n50 episodes, camera uncovered: {result.success_rate:.0%} success, "
        f"{result.never_closed_rate:.0%} never closed the gripper\n"
        f"median distance to the named block at the end {100 * result.final_distance:.0f} cm (closing reaches 7 cm)"
    )


def _train(learner: Any, frames: Frames, seed: int) -> tuple[Any, list[float]]:
    policy = learner.policy.build_policy(seed)
    return policy, fit(policy, frames, steps=STEPS, seed=seed, batch_size=BATCH_SIZE)


def _covered(frames: Frames) -> Frames:
    """The same frames, in which the camera sees only the colour of the table."""
    return replace(frames, image=np.broadcast_to(np.array(TABLE_RGB, np.uint8), frames.image.shape))


def policy_refusals(
    learner: Any, batch: dict[str, Tensor], height: int, width: int, sizes: dict[str, int]
) -> dict[str, str]:
    """The name of the exception, or "none", of each use of a policy of these sizes for images of height x width.

    Images are random, and the rest is the batch's. The uses are the embedded image, the loss, and the chunk.
    """
    policy = learner.policy.AnyShapePolicy(PolicyConfig(**sizes))
    images = torch.rand(len(batch["action"]), 3, height, width)
    batch = {**batch, "pixel_values": images}
    raised = {}
    for name, use in (
        ("embedded image", lambda: policy.embed_images(images)),
        ("loss", lambda: policy(**batch).loss),
        ("chunk", lambda: policy.eval().predict(batch)),
    ):
        try:
            use()
            raised[name] = "none"
        except Exception as error:  # the check decides whether it is the expected one
            raised[name] = type(error).__name__
    return raised


def patches_of_views(learner: Any, images: Tensor, size: int) -> dict[str, Any]:
    """The rows for images (B, C, H, W) with the same numbers, but in another order or with gaps in memory."""
    inside = torch.zeros(*images.shape[:2], images.shape[2] + 3, images.shape[3] + 5, dtype=images.dtype)
    cropped = inside[:, :, 1:-2, 4:-1]
    views = {
        "channels last": images.contiguous(memory_format=torch.channels_last),
        "cropped": cropped.copy_(images),
        "transposed": images.mT.contiguous().mT,
        "expanded": images[:1].expand(len(images), -1, -1, -1),
    }
    return {name: learner.policy.patchify(view, size) for name, view in views.items()}
