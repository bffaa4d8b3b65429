"""The policy, which of its parts train, and its loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labs.vla.dataset import Batch
from labs.vla.policy import OBSERVATION_KEYS, Policy


def build_policy(seed: int) -> Policy:
    """The pretrained base with a new head; the vision tower is frozen until `unfreeze`."""
    policy = Policy.from_base(seed=seed)
    for parameter in policy.vision.parameters():
        parameter.requires_grad = False
    return policy


def unfreeze(policy: Policy) -> None:
    """Let the vision tower train too."""
    for parameter in policy.vision.parameters():
        parameter.requires_grad = True


def errors(policy: Policy, batch: Batch) -> Tensor:
    """The error of every step of every chunk, (B, H), in normalised units."""
    feature = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
    target = policy.action_statistics.normalize(batch["action"])
    return F.smooth_l1_loss(policy.head(feature), target, beta=0.1, reduction="none").mean(dim=-1)


def action_loss(policy: Policy, batch: Batch) -> Tensor:
    """The mean error over the steps that are part of the episode; padded steps have no influence."""
    error = errors(policy, batch)
    is_step = torch.logical_not(batch["action_is_pad"])
    total = torch.zeros(())
    count = torch.zeros(())
    for index in range(error.shape[1]):
        total = total + (error[:, index] * is_step[:, index]).sum()
        count = count + is_step[:, index].sum()
    return total / count.clamp(min=1)


def gripper_accuracy(policy: Policy, batch: Batch) -> float:
    """How often the first command for the gripper has the correct sign."""
    with torch.no_grad():
        predicted = policy.predict(batch)[:, 0, 2]
        wanted = batch["action"][:, 0, 2]
        correct = 0
        for index in range(len(wanted)):
            if (predicted[index] > 0) == (wanted[index] > 0):
                correct += 1
    return correct / len(wanted)
