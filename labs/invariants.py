"""What the checks of several labs share: random batches, and properties of every correctly fixed policy.

Used by checks.py in the grader's process. Each `expect_…` function names the probe that it calls. The most common is
`action(learner, batch, seed)`: the chunk (B, H, A) predicted for `batch` by a policy that depends on the seed alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from labs.grading import Rng, Submission, expect

HORIZON, ACTION_DIM, STATE_DIM = 4, 3, 3
WORDS, VOCABULARY = 8, 12
"""Length of an instruction, and the number of words in use; ids 0 and 1 are padding and the beginning."""
PARTS = ["head", "language_model", "projector", "proprioception", "vision"]
"""The parts of the healthy policy that have parameters."""
TOLERANCE = 1e-3
"""Relative to the reference's size. Rounding alone gives 1e-5."""


def random_batch(
    rng: Rng, size: int, *, horizon: int = HORIZON, action_dim: int = ACTION_DIM, state_dim: int = STATE_DIM
) -> dict[str, Tensor]:
    """A batch in which all frames differ and no step is padded.

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


def padded_batch(rng: Rng, size: int) -> dict[str, Tensor]:
    """A random batch in which later steps may be padding, but never the first one."""
    return {**random_batch(rng, size), "action_is_pad": random_padding(rng, size)}


def random_padding(rng: Rng, size: int, *, longest: int = HORIZON) -> Tensor:
    """Which steps are padding (B, H): all after the first 1 to `longest` of each chunk."""
    length = rng.integers(1, longest + 1, size)
    return torch.arange(HORIZON)[None] >= length[:, None]


def expect_image_and_instruction_to_matter(
    submission: Submission, rng: Rng, *, batch: dict[str, Tensor] | None = None, **asked: Any
) -> None:
    """Another image and another instruction must each change the predicted chunk. Probe: `action`."""
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
    """In evaluation the chunk predicted for a frame must not depend on the rest of the batch. Probe: `action`."""
    batch, seed = random_batch(rng, 4), rng.seed()
    together = submission.observe("action", batch=batch, seed=seed, **asked)
    other = {**batch, "pixel_values": torch.cat([batch["pixel_values"][:1], rng.normal(3, 3, 64, 64, std=3.0)])}
    expect(submission.observe("action", batch=other, seed=seed, **asked)[0], "the first frame's action").close_to(
        together[0], rtol=1e-4, atol=1e-5
    )


def expect_step_on_a_second_device(submission: Submission, batch: dict[str, Tensor], seed: int) -> None:
    """A step must complete with no tensor left on the CPU. Probe: `second_device`, what `simulate_device` returns."""
    seen = submission.observe("second_device", batch=batch, seed=seed)
    left = [stray["attribute"] or stray["operation"] for stray in seen["strays"]]
    expect(", ".join(left) or "nothing", "what was left on the CPU").equals("nothing")
    expect(seen["not_examined"], "the reason why the step was not examined").equals(None)
    expect(seen["forward"], "whether forward completed on the second device").is_true()
    expect(seen["backward"], "whether backward completed on the second device").is_true()


def expect_success_rate(success: Tensor, *, episodes: int, at_least: float) -> None:
    """At least this share of all `episodes`, whose successes (N,) a rollout returned, must have succeeded."""
    expect(success, "the list of successes").has_shape(episodes)
    expect(success.double().mean(), "the success rate").at_least(at_least)


def listed(names: Iterable[str]) -> str:
    """The first name in alphabetical order and how many more there are, or "nothing"."""
    first, *others = sorted(names) or ["nothing"]
    return f"{first} and {len(others)} more" if others else first


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """The length of the difference relative to that of `wanted`."""
    return float((found - wanted).norm() / wanted.norm())


def close(found: Tensor, wanted: Tensor, rtol: float = TOLERANCE) -> bool:
    """Whether two tensors are equal up to rounding, relative to the length of `wanted`, which may be zero."""
    return bool((found - wanted).norm() <= rtol * wanted.norm() + 1e-7)


def expect_equal(found: Any, wanted: Tensor, what: str) -> None:
    """A tensor must be equal to `wanted` up to rounding, relative to its length."""
    expect(found, what).has_shape(*wanted.shape)
    expect(relative_error(found, wanted), f"the relative error of {what}").at_most(TOLERANCE)
