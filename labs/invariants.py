"""What every lab's checks share: a random batch to ask with, and what must hold of any policy however it was mended.

Used by checks.py in the grader's process. The probe that these functions ask is called `action(learner, batch, seed)`
and returns the chunk (B, H, A) that a policy predicts for `batch`, the same policy for the same seed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, expect

HORIZON, ACTION_DIM, STATE_DIM = 4, 3, 3
WORDS, VOCABULARY = 8, 12
"""Length of an instruction, and the words that instructions are made of; ids 0 and 1 are padding and beginning."""


def random_batch(
    rng: Rng, size: int, *, horizon: int = HORIZON, action_dim: int = ACTION_DIM, state_dim: int = STATE_DIM
) -> dict[str, Tensor]:
    """A batch no frame of which is like another, and none of whose steps is padded.

    pixel_values (B, 3, 64, 64), input_ids and attention_mask (B, 8), state (B, S), action (B, H, A) whose last number
    is the gripper's, -1 or +1, and action_is_pad (B, H).
    """
    move = rng.uniform(size, horizon, action_dim - 1, low=-0.1, high=0.1)
    grip = 2.0 * rng.boolean(size, horizon, 1).float() - 1
    return {
        "pixel_values": rng.normal(size, 3, 64, 64),
        "input_ids": torch.stack([rng.permutation(VOCABULARY)[:WORDS] + 2 for _ in range(size)]),
        "attention_mask": torch.ones(size, WORDS, dtype=torch.long),
        "state": rng.uniform(size, state_dim),
        "action": torch.cat([move, grip], dim=-1),
        "action_is_pad": torch.zeros(size, horizon, dtype=torch.bool),
    }


def expect_image_and_instruction_to_matter(
    submission: Submission, rng: Rng, *, batch: dict[str, Tensor] | None = None, **asked: Any
) -> None:
    """Another image and another instruction must each change the predicted chunk."""
    batch, seed = batch or random_batch(rng, 3), rng.seed()
    predicted = submission.observe("action", batch=batch, seed=seed, **asked)
    expect(predicted, "the action chunk").has_shape(*batch["action"].shape)
    for name, other in (
        ("pixel_values", batch["pixel_values"].flip(0)),
        ("input_ids", batch["input_ids"].roll(1, dims=0)),
    ):
        moved = submission.observe("action", batch={**batch, name: other}, seed=seed, **asked)
        expect(moved, f"the action under another {name}").differs_from(predicted)


def expect_frames_to_be_independent(submission: Submission, rng: Rng, **asked: Any) -> None:
    """In evaluation the chunk predicted for a frame must not depend on what else is in the batch."""
    batch, seed = random_batch(rng, 4), rng.seed()
    together = submission.observe("action", batch=batch, seed=seed, **asked)
    other = {**batch, "pixel_values": torch.cat([batch["pixel_values"][:1], rng.normal(3, 3, 64, 64, std=3.0)])}
    expect(submission.observe("action", batch=other, seed=seed, **asked)[0], "the first frame's action").close_to(
        together[0], rtol=1e-4, atol=1e-5
    )
