"""Measures the learner's prompts and policy for the grader and `lab run`; runs with the learner's code, sandboxed."""

from __future__ import annotations

import traceback
from typing import Any

import torch
from torch import Tensor

from labs.rendered_images import rendered_images
from labs.vla.dataset import Batch, batches, demonstrations
from labs.vla.language import detokenize
from labs.vla.policy import OBSERVATION_KEYS
from labs.vla.rollout import rollout
from labs.vla.tabletop import IMAGE_SIZE, TABLE_RGB
from labs.vla.training import fit

TRAINING_STEPS, BATCH_SIZE = 150, 32
FRAMES = 8
TAILS = ("", "", " please reach the block", " now please go to the block now")
"""What people say after the instruction, in turn."""
WRIST_PIXELS = 32
"""The wrist camera sees so many pixels of the table, with the gripper in the middle, as 64 × 64."""


def prompts(learner: Any, instructions: list[str], cameras: int, max_length: int | None) -> dict[str, Any]:
    """What `encode_prompts` returns, or the type of what it raises."""
    asked = {} if max_length is None else {"max_length": max_length}
    try:
        input_ids, attention_mask = learner.policy.encode_prompts(instructions, cameras, **asked)
    except Exception as error:
        return {"raised": type(error).__name__}
    return {"input_ids": input_ids, "attention_mask": attention_mask, "raised": None}


def step(learner: Any, observed: dict[str, Any], targets: Batch, seed: int) -> dict[str, Any]:
    """The loss of a fresh policy on observations and targets, its gradients, and the predicted chunk."""
    policy, batch = learner.policy.build_policy(seed), learner.policy.observation_batch(**observed)
    loss = policy(**batch, **targets).loss
    loss.backward()
    gradients = {name: value.grad for name, value in policy.named_parameters() if value.grad is not None}
    return {"loss": loss, "gradients": gradients, "chunk": policy.eval().predict(batch)}


def two_cameras(learner: Any, batch: Batch, tails: tuple[str, ...] = ("",)) -> Batch:
    """A batch of the tabletop as a robot with a wrist camera observes it, where people add `tails`, in turn."""
    above = rendered_images(batch["pixel_values"])
    said = [text + tails[row % len(tails)] for row, text in enumerate(detokenize(batch["input_ids"]))]
    images = torch.stack([above, wrist_view(above, batch["state"])], dim=1)
    rest = {name: value for name, value in batch.items() if name not in OBSERVATION_KEYS}
    return {**learner.policy.observation_batch(images, batch["state"], said), **rest}


def wrist_view(above: Tensor, state: Tensor) -> Tensor:
    """The surroundings of the gripper, enlarged: uint8 (B, 64, 64, 3) images from above to the same shape."""
    half = WRIST_PIXELS // 2
    table = torch.tensor(TABLE_RGB, dtype=torch.uint8)
    padded = table.expand(len(above), IMAGE_SIZE + 2 * half, IMAGE_SIZE + 2 * half, 3).clone()
    padded[:, half:-half, half:-half] = above
    corner = (state[:, :2] * (IMAGE_SIZE - 1)).round().long().clamp(0, IMAGE_SIZE - 1)  # (B, 2), x and y
    views = [image[y : y + 2 * half, x : x + 2 * half] for image, (x, y) in zip(padded, corner.tolist(), strict=True)]
    return torch.stack(views).repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)


def raised_by_the_policy(learner: Any, batch: Batch) -> str | None:
    """The type of what the policy raises for a batch."""
    try:
        learner.policy.build_policy(0).predict(batch)
    except Exception as error:
        return type(error).__name__
    return None


def trained_rollout(learner: Any, seed: int, episodes: int) -> dict[str, Tensor]:
    """Fine-tune the policy on two cameras and longer instructions, and run closed-loop episodes with them."""
    policy = learner.policy.build_policy(seed)
    frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, seed)
    fit(
        policy,
        frames,
        steps=TRAINING_STEPS,
        seed=seed,
        batch_size=BATCH_SIZE,
        loss_fn=lambda policy, batch: policy(**two_cameras(learner, batch, TAILS)).loss,
    )
    result = rollout(
        policy,
        episodes=episodes,
        first_seed=500_000 + seed,
        predict=lambda batch: policy.predict(two_cameras(learner, batch, TAILS)),
    )
    return {"success": torch.from_numpy(result.success)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a policy, and a batch of two cameras with short and long instructions."""
    policy = learner.policy.build_policy(0)
    batch = next(batches(demonstrations(FRAMES, seed=6), FRAMES, steps=1, seed=6))
    optimizer = torch.optim.AdamW(policy.parameters())
    return {"model": policy, "batch": two_cameras(learner, batch, TAILS), "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """One batch for each number of cameras, with short and with long instructions: what `lab run 06` shows."""
    policy = learner.policy.build_policy(0)
    frames = demonstrations(FRAMES, seed=6)
    targets = {"action": torch.from_numpy(frames.action), "action_is_pad": torch.from_numpy(frames.action_is_pad)}
    above, state = torch.from_numpy(frames.image), torch.from_numpy(frames.state)
    images = torch.stack([above, wrist_view(above, state)], dim=1)
    print(f"Batches of {FRAMES} frames      longest instruction     loss")
    for cameras, name in ((1, "one camera"), (2, "two cameras")):
        for tails in (("",), TAILS):
            said = [text + tails[row % len(tails)] for row, text in enumerate(frames.instruction)]
            longest = max(len(text.split()) for text in said)
            print(f"  {name:20} {longest:12} words", end="", flush=True)
            try:
                batch = learner.policy.observation_batch(images[:, :cameras], state, said)
                loss = policy(**batch, **targets).loss
            except Exception as error:
                print("\n")
                _print_traceback(error)
                return
            print(f"  {loss:14.3f}")


def _print_traceback(error: Exception) -> None:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/torch/" not in frame.filename]
    print("  Traceback (most recent call last):")
    for frame in frames[-4:]:
        file = frame.filename.rpartition("/labs/vla/")
        where = f"labs/vla/{file[2]}" if file[1] else frame.filename.rpartition("/")[2]
        print(f"    {where}:{frame.lineno} in {frame.name}\n      {frame.line}")
    print(f"  {type(error).__name__}: {error}")
