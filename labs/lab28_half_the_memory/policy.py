"""Fine-tuning on an accelerator that computes in float16 only, with float32 weights beside it.

The policy exists twice: a float16 copy does the forward and the backward pass, a float32 master holds the weights that
are trained. After each step the master is copied into the half-precision one:

    half (float16) ── forward, loss, backward ── gradients (float16) ── to float32 ── master, AdamW ── copied to half

Requirements for a step
- All of the policy's layers, forward and backward, run in float16. Only the loss is computed in float32.
- The optimizer receives the float32 gradients, within one per cent.
- The reported loss is in square metres, whatever is done to it internally.

Notable choices
- The loss is in square metres, the unit in which the robot's users measure errors: the gripper's command of -1 or +1
  corresponds to four centimetres of finger travel.
- Every frame has a weight for the quality of its demonstration, from 0, for one that does not count, to twenty times
  the mean. The weights of all frames in the data set add up to one. So the loss of a batch is a share of the data
  set's, and batches may differ in size.
- AdamW's settings stay as they are. Its epsilon is below 1e-8, the default, and below the gradients of such a loss.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor

from labs.vla.dataset import Batch
from labs.vla.policy import OBSERVATION_KEYS, Policy

LEARNING_RATE = 1e-3
EPSILON = 1e-20
FINGER_TRAVEL = 0.04
"""Metres from the gripper's middle position to open or closed."""
FRAMES_IN_DATA_SET = 1_000_000


class HalfPrecisionTrainer:
    """Trains `master`, a float32 policy, through a float16 copy of it, `half`; both are in training mode."""

    def __init__(self, master: Policy) -> None:
        self.master = master.train()
        self.half = copy.deepcopy(master).half()
        self.optimizer = torch.optim.AdamW(
            master.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), eps=EPSILON, weight_decay=0.0
        )

    def step(self, batch: Batch, frame_weight: Tensor) -> float:
        """Train on one batch, whose frames have the weights (B,), and return its loss in square metres."""
        loss = self.backward(batch, frame_weight)
        self.optimizer.step()
        self.refresh_half()
        return loss

    def backward(self, batch: Batch, frame_weight: Tensor) -> float:
        """Store this batch's gradient in the master's `.grad`, float32, or None where it is frozen; return the loss."""
        self.half.zero_grad()
        loss = weighted_loss(self.half, in_half_precision(batch), frame_weight)
        loss.backward()
        for parameter, half in zip(self.master.parameters(), self.half.parameters(), strict=True):
            parameter.grad = None if half.grad is None else half.grad.float()
        return loss.item()

    @torch.no_grad()
    def refresh_half(self) -> None:
        """Copy the master's weights into the float16 policy."""
        for parameter, half in zip(self.master.parameters(), self.half.parameters(), strict=True):
            half.copy_(parameter)


def weighted_loss(policy: Policy, batch: Batch, frame_weight: Tensor) -> Tensor:
    """The batch's share of the data set's loss, in square metres: a scalar in float32."""
    feature = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
    unit = batch["action"].new_tensor([1.0, 1.0, FINGER_TRAVEL])
    error = (policy.decode(feature).float() - batch["action"]) * unit  # (B, H, A), metres
    is_step = ~batch["action_is_pad"]  # (B, H)
    of_frame = (error.square().mean(dim=-1) * is_step).sum(dim=1) / is_step.sum(dim=1)  # (B,)
    return (frame_weight * of_frame).sum()


def frame_weights(quality: Tensor) -> Tensor:
    """Weights (B,) from the quality of each frame's demonstration (mean 1); over the data set they sum to one."""
    return quality / FRAMES_IN_DATA_SET


def in_half_precision(batch: Batch) -> Batch:
    """The batch with its images in float16; indices, masks and targets stay as they are."""
    return {**batch, "pixel_values": batch["pixel_values"].half()}


def train(policy: Policy, stream: Iterable[Batch]) -> list[float]:
    """Fine-tune `policy` in place, with equal weights; leave it in evaluation mode; return each batch's loss in m²."""
    trainer = HalfPrecisionTrainer(policy)
    losses = [trainer.step(batch, frame_weights(torch.ones(len(batch["state"])))) for batch in stream]
    policy.eval()
    return losses
