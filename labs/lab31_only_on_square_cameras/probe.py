"""Measures the port for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labs.strip_cameras import (
    CAMERAS,
    Observation,
    exported,
    observations_of,
    original_base,
    original_policy,
    seen_by,
    succeeded,
)
from labs.vla.dataset import Batch, demonstrations

SEED = 31
EPISODES = 80


def prepared(learner: Any, image: Tensor | None, size: int | None = None) -> dict[str, Tensor | None]:
    """What an image (H, W, 3) is prepared to, and the image afterwards; without `size`, the default counts."""
    given = None if image is None else image.numpy().copy()
    pixels = learner.policy.prepare_image(given, **({} if size is None else {"size": size}))
    return {"pixels": pixels, "image": None if given is None else torch.from_numpy(given)}


def batch(learner: Any, images: list[Tensor | None], state: Tensor, instruction: list[str]) -> Batch:
    """The batch of these observations; `images` are (H, W, 3) each, or None."""
    return dict(learner.policy.prepare_batch(_observations(images, state, instruction)))


def loaded(learner: Any, weights: dict[str, Tensor]) -> dict[str, Any]:
    """What the port's policy has for weights, and whether it is in training mode."""
    policy = learner.policy.load_port(weights)
    return {"weights": dict(policy.state_dict()), "training": policy.training}


def action(
    learner: Any, weights: dict[str, Tensor], images: list[Tensor | None], state: Tensor, instruction: list[str]
) -> Tensor:
    """What the port does for these observations, (B, H, 3)."""
    return learner.policy.act(learner.policy.load_port(weights), _observations(images, state, instruction))


def episodes(learner: Any, seed: int, cameras: list[str], count: int) -> dict[str, Tensor]:
    """For each camera, which of the port's episodes ended with a grasp, with a newly trained original's weights."""
    policy = learner.policy.load_port(exported(original_policy(seed)))
    return {
        camera: succeeded(policy, camera, count, 500_000 + seed, lambda seen: learner.policy.act(policy, seen))
        for camera in cameras
    }


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: the port, its tower frozen, and a batch from two cameras with actions."""
    policy = learner.policy.load_port(exported(original_base(0)))
    policy.vision.requires_grad_(False)
    frames = demonstrations(64, seed=SEED)
    seen: list[Observation] = []
    for camera, rows in (("landscape", slice(0, 16)), ("portrait", slice(16, 32))):
        images = torch.from_numpy(seen_by(camera, frames.image[rows]))
        seen += _observations(list(images), torch.from_numpy(frames.state[rows]), frames.instruction[rows])
    actions = {
        "action": torch.from_numpy(frames.action[:32]),
        "action_is_pad": torch.from_numpy(frames.action_is_pad[:32]),
    }
    batch = {**learner.policy.prepare_batch(seen), **actions}
    optimizer = torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad], lr=1e-3)
    return {"model": policy, "batch": batch, "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """Trains the original and runs it and its port on robots with three cameras: the output of `lab run 31`."""
    print("Training the original on frames of three cameras ...", flush=True)
    original = original_policy(SEED)
    port = learner.policy.load_port(exported(original))
    with torch.no_grad():
        same = all(torch.equal(value, port.state_dict()[name]) for name, value in original.state_dict().items())
    print(f"The port has the same weights: {'yes' if same else 'no'}\n")
    print("                          episodes with a grasp")
    print("camera      image         original   port")
    for camera in CAMERAS:
        first = 500_000 + SEED
        runs = [succeeded(original, camera, EPISODES, first)]
        runs.append(succeeded(port, camera, EPISODES, first, lambda seen: learner.policy.act(port, seen)))
        frame = observations_of(camera, demonstrations(32, seed=SEED))[0]
        height, width, _ = frame["image"].shape
        rates = "  ".join(f"{run.double().mean():7.0%}" for run in runs)
        print(f"{camera:10}  {height:3} × {width:3}   {rates}", flush=True)


def _observations(images: Sequence[Tensor | None], state: Tensor, instruction: Sequence[str]) -> list[Observation]:
    return [
        {"image": None if image is None else image.numpy(), "state": np.asarray(own), "instruction": said}
        for image, own, said in zip(images, state, instruction, strict=True)
    ]
