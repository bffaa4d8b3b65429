"""The healthy training with which lab 72 compares: a loss with an adapted weight, dropout, and the loop around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.dataset import Frames, collate
from labs.vla.policy import OBSERVATION_KEYS, Policy
from labs.vla.training import MAX_GRADIENT_NORM, learning_rate_at
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD

DROPOUT, DISCOUNT = 0.1, 0.9
GRIPPER_BOUND, GRIPPER_RATE = 0.3, 0.05
BETAS, WEIGHT_DECAY = (0.9, 0.95), 0.01


class Reference:
    """The policy with the gripper's weight beside it, starting from 1."""

    def __init__(self, seed: int, louder: float = 1.0, rate: float = GRIPPER_RATE) -> None:
        self.policy = Policy.from_base(seed=seed)
        self.log_weight = torch.zeros(())
        self.rate = rate
        with torch.no_grad():
            self.policy.head.mlp[-1].weight.mul_(louder)

    def loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The loss of a batch; in training mode it adapts the weight of the next one."""
        training = self.policy.training
        feature = self.policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
        predicted = self.policy.head(F.dropout(feature, DROPOUT, training))
        error = (predicted - self.policy.action_statistics.normalize(batch["action"])).square()
        horizon = error.shape[1]
        counts = (~batch["action_is_pad"]).float() * DISCOUNT ** torch.arange(horizon)
        mean = (error * counts[..., None]).sum(dim=(0, 1)) / counts.sum()
        loss = mean[:-1].mean() + self.log_weight.exp() * mean[-1]
        if training:
            self.log_weight = self.log_weight + self.rate * (mean[-1].detach() - GRIPPER_BOUND)
        return loss

    def losses(self, batches: Sequence[Mapping[str, Tensor]], seed: int) -> Tensor:
        """The losses of the batches in turn, without an optimizer step; the gradients left are those of the last."""
        torch.manual_seed(seed)
        found = []
        for batch in batches:
            self.policy.zero_grad()
            loss = self.loss(batch)
            loss.backward()
            found.append(loss.detach())
        return torch.stack(found)

    def train(
        self, batches: Sequence[Mapping[str, Tensor]], learning_rate: float, seed: int
    ) -> tuple[list[float], list[dict[str, float]]]:
        """Train in place; returns the losses, and the norm of each clipped gradient at each step."""
        optimizer = torch.optim.AdamW(self.policy.parameters(), betas=BETAS, weight_decay=WEIGHT_DECAY)
        losses, norms = [], []
        self.policy.train()
        torch.manual_seed(seed)
        for step, batch in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate_at(step, len(batches), learning_rate)
            loss = self.loss(batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), MAX_GRADIENT_NORM)
            norms.append({name: float(p.grad.norm()) for name, p in self.policy.named_parameters()})
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses, norms


def steps_of(kills: Sequence[int], steps: int, save_every: int) -> list[list[int]]:
    """The steps of each process of a run that is killed after the steps `kills`."""
    starts = [1, *(kill // save_every * save_every + 1 for kill in kills)]
    return [list(range(start, end + 1)) for start, end in zip(starts, [*kills, steps], strict=True)]


def different(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """The names of the tensors that are not bit for bit the same in two state_dicts."""
    both = one.keys() & other.keys()
    return (one.keys() ^ other.keys()) | {name for name in both if not same(one[name], other[name])}


def same(one: Any, other: Any) -> bool:
    """Whether two entries of a state_dict are bit for bit the same."""
    return torch.equal(one, other) if isinstance(one, Tensor) and isinstance(other, Tensor) else bool(one == other)


def under_one_lamp(batch: Mapping[str, Tensor], frames: Frames) -> tuple[int, float]:
    """How many pixels of a batch are not those of its frames under one lamp, and the lamp's brightness.

    A frame is found by its state and its action; one that is not among the recordings counts with all its pixels.
    """
    recorded = collate(frames, range(len(frames)))
    rows = torch.cat([recorded["state"], recorded["action"].flatten(1)], dim=1)
    mine = torch.cat([batch["state"], batch["action"].flatten(1)], dim=1)
    which = (mine[:, None] - rows[None]).abs().amax(dim=-1).argmin(dim=1)
    found = recorded["pixel_values"][which].double() * PIXEL_STD + PIXEL_MEAN
    seen = batch["pixel_values"].double() * PIXEL_STD + PIXEL_MEAN
    known = (mine == rows[which]).all(dim=1)
    lamp = float((seen / found.clamp(min=1e-3))[found > 0.3].median())
    wrong = (seen - (found * lamp).clamp(0, 1)).abs() > 2e-3
    return int((wrong | ~known[:, None, None, None]).sum()), lamp
