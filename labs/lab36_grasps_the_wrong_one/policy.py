"""A policy that learns from recordings of two cameras, and drives the robot with the same two.

    left camera  ┐                  ┌─ record ── image files ── load ─┐
                 ├─ grab ── images ─┤                                 ├─ join ── (64, 64, 3) ── policy ── actions
    right camera ┘                  └────────── on the robot ─────────┘

Notable choices
- Each camera sees one half of the table, and its driver has its own order of channels. Behind `grab` every image is
  RGB, which is what the base was pretrained on: in the recordings, on the robot and in what the policy learns from.
- Images are written to files and read from files as with OpenCV. The files are PNG: nothing is lost, and every viewer
  shows a recording in its true colours.
- Files outlive programs. Recordings that exist were written by `record`, and stay readable.
- The halves are joined before the pixels are normalised, so the policy receives one image, as in its pretraining.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from labs.image_files import imdecode, imencode
from labs.two_cameras import Images
from labs.vla.dataset import Batch, Frames, observation_batch
from labs.vla.policy import Policy
from labs.vla.training import OnStep, fit

CAMERAS = {"left": "bgr", "right": "rgb"}
"""The cameras from left to right, each with the order of the channels that its driver delivers."""
LEARNING_RATE = 2e-3


@dataclass(frozen=True)
class Recording:
    """N moments of demonstrations."""

    files: Mapping[str, Sequence[bytes]]
    """For each camera, N PNG files."""
    state: NDArray[np.float32]
    """(N, 3): x, y in metres, gripper."""
    instruction: tuple[str, ...]
    """N sentences."""
    action: NDArray[np.float32]
    """(N, H, 3): the expert's next H actions, in environment units."""
    action_is_pad: NDArray[np.bool_]
    """(N, H): True for steps after the episode's end."""


def grab(delivered: Mapping[str, NDArray[np.uint8]]) -> Images:
    """The images (N, H, W, 3) of all cameras, from what their drivers deliver, which is not modified."""
    return {name: delivered[name][..., ::-1] if order == "bgr" else delivered[name] for name, order in CAMERAS.items()}


def record(images: Mapping[str, NDArray[np.uint8]]) -> dict[str, tuple[bytes, ...]]:
    """The files of N images of each camera."""
    return {name: tuple(imencode(image[..., ::-1]) for image in images[name]) for name in CAMERAS}


def load(files: Mapping[str, Sequence[bytes]]) -> Images:
    """The images of each camera from their files, as they were recorded."""
    return {name: np.stack([imdecode(file) for file in files[name]]) for name in CAMERAS}


def preview(files: Mapping[str, Sequence[bytes]], moment: int) -> NDArray[np.uint8]:
    """The images of all cameras at one moment of a recording, next to each other: RGB for a viewer, (H, W, 3)."""
    return np.concatenate([imdecode(files[name][moment]) for name in CAMERAS], axis=1)[..., ::-1]


def join(images: Mapping[str, NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """One image of the whole table from the cameras' halves, (N, H, W, 3)."""
    return np.concatenate([images[name] for name in CAMERAS], axis=2)


def training_frames(recording: Recording) -> Frames:
    """What the policy learns from."""
    image = join(load(recording.files))
    return Frames(image, recording.state, recording.instruction, recording.action, recording.action_is_pad)


def fine_tune(recording: Recording, seed: int, steps: int, on_step: OnStep | None = None) -> Policy:
    """Fine-tune the pretrained base on a recording. `on_step(step, loss)` is called after each update."""
    policy = Policy.from_base(seed=seed)
    frames = training_frames(recording)
    fit(policy, frames, steps=steps, seed=seed, learning_rate=LEARNING_RATE, on_step=on_step)
    return policy


def observe(
    delivered: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32], instruction: Sequence[str]
) -> Batch:
    """The policy's input on the robot, from what the drivers deliver, states (B, 3) and B instructions."""
    return observation_batch(join(grab(delivered)), state, instruction)


def act(
    policy: Policy, delivered: Mapping[str, NDArray[np.uint8]], state: NDArray[np.float32], instruction: Sequence[str]
) -> Tensor:
    """The next actions of each robot, (B, H, 3) in environment units."""
    return policy.predict(observe(delivered, state, instruction))
