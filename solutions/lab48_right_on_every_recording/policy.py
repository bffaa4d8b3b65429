"""A policy on its way from the demonstrations to the robot.

    image (B, 80, 80, 3) ── crop ── normalise ── resize ── pixel_values (B, 3, 64, 64) ┐
    instruction, a sentence ── prompt ── tokens ────────── input_ids (B, L)             ├── policy ── actions
    state (B, 3) ───────────────────────────────────────── state (B, 3)                 ┘

    fine_tune ── checkpoint: weights and settings ── Robot

Notable choices
- The camera sees more of the table than the arm reaches. Cropped to its middle, an image shows what the base was
  pretrained on.
- One class prepares observations, for training and for the robot. Its settings are chosen for each fine-tuning, so they
  belong to the checkpoint: a robot prepares an observation exactly as its policy was trained.
- Checkpoints are older than some settings. The default of a setting is how observations were prepared before there was
  one: the whole image, the instruction alone, 8 tokens.
- The state is the robot's own measurement, in metres, and is neither cropped nor scaled.
- The robot executes what the policy predicts, in environment units.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from labs.reference_training import train_step
from labs.vla.dataset import Batch, Frames
from labs.vla.language import tokenize
from labs.vla.policy import Policy
from labs.vla.tabletop import IMAGE_SIZE, stack_observations
from labs.vla.training import learning_rate_at
from labs.vla.vision import normalize_pixels

WEIGHTS, ABOUT = "model.safetensors", "about.json"
"""The two files of a checkpoint."""
BATCH_SIZE, LEARNING_RATE = 64, 1e-3


@dataclass(frozen=True)
class Processor:
    """Prepares raw observations for a policy: `processor(image, state, instruction)`."""

    crop: float = 1.0
    """The share of the image's height and width that is kept, around its middle, rounded to a pixel."""
    prompt: str = "{task}"
    """The sentence that the policy reads; the instruction takes the place of `{task}`."""
    length: int = 8
    """Tokens that the policy reads, with the padding on the right. A longer prompt is cut at its end."""

    def __call__(self, image: NDArray[np.uint8], state: NDArray[np.float32], instruction: Sequence[str]) -> Batch:
        """A policy's input from square images (B, S, S, 3), states (B, 3) and B instructions."""
        size = image.shape[1]
        kept = round(self.crop * size)
        edge = (size - kept) // 2
        pixels = normalize_pixels(torch.from_numpy(image[:, edge : edge + kept, edge : edge + kept]))  # (B, 3, K, K)
        if kept != IMAGE_SIZE:
            pixels = F.interpolate(pixels, (IMAGE_SIZE, IMAGE_SIZE), mode="bilinear", antialias=True)
        prompts = [self.prompt.format(task=task) for task in instruction]
        input_ids, attention_mask = tokenize(prompts, self.length)
        return {
            "pixel_values": pixels,
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "state": torch.from_numpy(state),
        }


TRAINED_WITH = Processor(crop=0.8, prompt="please move to the block now {task}", length=16)


def training_batch(frames: Frames, indices: NDArray[np.integer], processor: Processor) -> Batch:
    """The prepared frames at `indices`, with the expert's actions (B, H, 3) and which of them are padding (B, H)."""
    batch = processor(frames.image[indices], frames.state[indices], [frames.instruction[i] for i in indices])
    batch["action"] = torch.from_numpy(frames.action[indices])
    batch["action_is_pad"] = torch.from_numpy(frames.action_is_pad[indices])
    return batch


def fine_tune(
    frames: Frames,
    folder: Path,
    seed: int,
    steps: int = 150,
    processor: Processor = TRAINED_WITH,
    on_step: Callable[[int, float], None] = lambda _step, _loss: None,
) -> Policy:
    """Fine-tune the base on the frames, and save it as a checkpoint. Returns the policy, in evaluation mode.

    Every step draws new frames from the seed, without replacement within the step. `on_step(step, loss)` is called
    after each update.
    """
    policy = Policy.from_base(seed=seed)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    rng = np.random.default_rng(seed)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, steps, LEARNING_RATE)
        chosen = rng.choice(len(frames), BATCH_SIZE, replace=False)
        on_step(step, train_step(policy, optimizer, training_batch(frames, chosen, processor)))
    save_checkpoint(folder, policy, processor, {"seed": seed, "steps": steps})
    return policy.eval()


def save_checkpoint(folder: Path, policy: Policy, processor: Processor, training: Mapping[str, Any]) -> None:
    """Write a checkpoint: the weights, and a file about them, with the settings in `processor`.

    What is in `training` says how the policy was trained, and is for people. Many checkpoints of this form exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_file(policy.state_dict(), folder / WEIGHTS)
    about = {"processor": asdict(processor), "training": dict(training)}
    (folder / ABOUT).write_text(json.dumps(about, indent=2))


def load_processor(folder: Path) -> Processor:
    """The processor of a checkpoint, which may be older than some of its settings.

    Raises an error that names the setting, if the checkpoint has one that a processor does not have.
    """
    about = json.loads((folder / ABOUT).read_text())
    return Processor(**about["processor"])


class Robot:
    """Acts with the policy of a checkpoint. An observation has an `image`, a `state` and an `instruction`."""

    def __init__(self, folder: Path) -> None:
        self.policy = Policy().eval()
        self.policy.load_state_dict(load_file(folder / WEIGHTS))
        self.processor = load_processor(folder)

    def observe(self, observations: Sequence[Mapping[str, Any]]) -> Batch:
        """The policy's input."""
        return self.processor(**stack_observations([dict(observation) for observation in observations]))

    def act(self, observations: Sequence[Mapping[str, Any]]) -> Tensor:
        """The next actions of each robot, (B, H, 3)."""
        return self.policy.predict(self.observe(observations))
