"""Make the base checkpoint: `python -m labs.vla.pretrain` writes labs/vla/base.safetensors.

A robot's policy starts from a vision-language model that was pretrained without actions. Likewise, the base here
learns *grounding* and is never trained on an action.

- In each patch: the colour of the block, if any, and its position in the patch (read from the vision tower).
- At the colour's word: the position of the named block (read from the language model).
- At the last token: the position of the named block, on the table and relative to the gripper.

The tables come from seeds that `demonstrations()` rejects, so a lab's data is new to the base. From this base a new
regression head learns to act in about seven CPU seconds; from scratch the same policy never succeeds after twelve
(`RESULTS.md`). The seed, the steps, the sizes and the last losses are in the file's metadata.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from labs.vla.dataset import FIRST_PRETRAINING_SEED, Batch, Moments, observation_batch, sample_moments
from labs.vla.language import COLOUR_IDS, COLOURS
from labs.vla.policy import BASE_CHECKPOINT, BASE_PARTS, Policy, PolicyConfig
from labs.vla.tabletop import GRID_CELLS, IMAGE_SIZE

STEPS = 4000
SEED = FIRST_PRETRAINING_SEED
BATCH_SIZE = 64
LEARNING_RATE = 1e-3
WARM_UP_STEPS = 50


def pretrain(steps: int = STEPS, seed: int = SEED, report_every: int = 250) -> tuple[Policy, dict[str, float]]:
    """Train the vision-language part on grounding; returns it in a policy, with the mean losses of the last steps."""
    torch.manual_seed(seed)
    policy = Policy(PolicyConfig.tiny())
    questions = GroundingQuestions(policy.config)
    parameters = [*(p for part in BASE_PARTS for p in policy.get_submodule(part).parameters()), *questions.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.01)
    rng = np.random.default_rng(seed)
    recent: dict[str, float] = {}
    for step in range(steps):
        for group in optimizer.param_groups:
            cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / WARM_UP_STEPS) * (0.03 + 0.97 * cosine)
        losses = questions.losses(policy, GroundingBatch.of(sample_moments(rng, BATCH_SIZE)))
        optimizer.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        recent = {name: 0.98 * recent.get(name, loss.item()) + 0.02 * loss.item() for name, loss in losses.items()}
        if (step + 1) % report_every == 0:
            shown = "  ".join(f"{name} {value:.4f}" for name, value in recent.items())
            print(f"step {step + 1:5d}  {shown}  cpu {time.process_time():.0f} s", flush=True)  # noqa: T201
    return policy.eval(), recent


@dataclass(frozen=True)
class GroundingBatch:
    """Observations, and the targets of the grounding tasks."""

    observations: Batch
    named_block: Tensor
    """(B, 2): position of the named block, metres."""
    arm: Tensor
    """(B, 2): position of the gripper, metres."""
    patch_colour: Tensor
    """(B, P, 4): 1 where a block of that colour lies in the patch."""
    patch_offset: Tensor
    """(B, P, 2): the block's position in the patch, in [-1, 1]."""

    @classmethod
    def of(cls, moments: Moments) -> GroundingBatch:
        """Render moments and compute the targets."""
        colour, offset = _patch_contents(moments)
        return cls(
            observation_batch(moments.images(), moments.state(), moments.instruction),
            torch.from_numpy(moments.target_block).float(),
            torch.from_numpy(moments.arm).float(),
            torch.from_numpy(colour),
            torch.from_numpy(offset),
        )


class GroundingQuestions(nn.Module):
    """Linear readouts for the grounding tasks; discarded after pretraining."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.in_patch = nn.Linear(config.vision_width, len(COLOURS) + 2)
        self.at_word = nn.Linear(config.width, 2)
        self.at_state = nn.Linear(config.width, 4)

    def losses(self, policy: Policy, batch: GroundingBatch) -> dict[str, Tensor]:
        """The loss of each task."""
        seen = batch.observations
        features = policy.vision(pixel_values=seen["pixel_values"]).last_hidden_state  # (B, P, V)
        embeddings, mask = policy.join_prefix(
            policy.projector(features), seen["input_ids"], seen["attention_mask"], seen["state"]
        )
        hidden = policy.run_language_model(embeddings, mask)  # (B, T, D)
        patches = features.shape[1]
        is_colour = torch.isin(seen["input_ids"], torch.tensor(COLOUR_IDS))  # (B, L), one True per row
        at_word = hidden[:, patches : patches + is_colour.shape[1]][is_colour]  # (B, D)
        place = 4 * (batch.named_block - 0.5)
        from_gripper = 4 * (batch.named_block - batch.arm)
        return {
            "patch": self._patch_loss(features, batch),
            "word": F.smooth_l1_loss(self.at_word(at_word), place, beta=0.2),
            "state": F.smooth_l1_loss(self.at_state(hidden[:, -1]), torch.cat([place, from_gripper], -1), beta=0.2),
        }

    def _patch_loss(self, features: Tensor, batch: GroundingBatch) -> Tensor:
        answer = self.in_patch(features)  # (B, P, 6)
        colour, offset = answer[..., : len(COLOURS)], answer[..., len(COLOURS) :]
        occupied = batch.patch_colour.amax(dim=-1, keepdim=True)  # (B, P, 1)
        error = (occupied * (offset - batch.patch_offset).square()).mean()
        return F.binary_cross_entropy_with_logits(colour, batch.patch_colour) + error


def _patch_contents(moments: Moments) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The contents of each patch: colours (N, P, 4) and the position in the patch (N, P, 2)."""
    count = len(moments.target)
    patch = IMAGE_SIZE // GRID_CELLS
    colour = np.zeros((count, GRID_CELLS**2, len(COLOURS)), np.float32)
    offset = np.zeros((count, GRID_CELLS**2, 2), np.float32)
    pixels = moments.blocks * (IMAGE_SIZE - 1)  # (N, 3, 2)
    cell = (pixels // patch).astype(np.int64)
    index = cell[..., 1] * GRID_CELLS + cell[..., 0]  # (N, 3)
    rows = np.arange(count)[:, None]
    colour[rows, index, moments.colours] = 1
    offset[rows, index] = (pixels % patch - (patch - 1) / 2) / 3
    return colour, offset


def save_base(policy: Policy, path: Path, notes: dict[str, str]) -> None:
    """Write the pretrained parts, and the config sizes that they need, to `path`."""
    tensors = {
        f"{part}.{name}": value.contiguous()
        for part in BASE_PARTS
        for name, value in policy.get_submodule(part).state_dict().items()
    }
    sizes = {name: value for name, value in asdict(policy.config).items() if name not in _NOT_PRETRAINED}
    save_file(tensors, path, metadata={"config": json.dumps(sizes), **notes})


_NOT_PRETRAINED = ("head", "horizon", "action_dim", "max_positions")


def main() -> None:
    """Pretrain and write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=BASE_CHECKPOINT)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=SEED)
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # one thread and two differ in the last bits
    policy, losses = pretrain(chosen.steps, chosen.seed)
    notes = {
        "command": f"python -m labs.vla.pretrain --steps {chosen.steps} --seed {chosen.seed}",
        "task": "grounding: what is in each patch, where is the named block; no actions",
        "seed": str(chosen.seed),
        "steps": str(chosen.steps),
        "losses": json.dumps({name: round(value, 5) for name, value in losses.items()}),
        "torch": torch.__version__,
    }
    save_base(policy, chosen.out, notes)


if __name__ == "__main__":
    main()
