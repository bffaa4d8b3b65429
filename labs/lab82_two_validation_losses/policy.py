"""A policy in two parts, backbone and action head, fine-tuned by several processes.

    pixel_values ─┐
    input_ids ────┼─ backbone: tower, projector, Llama ─ feature (B, D) ─ head ─ chunk (B, H, A)
    state ────────┘

The backbone is pretrained and the head is new. Each is a module of its own with a file of its own, as in OpenVLA-OFT
(arXiv:2502.19645), so that another head can be put on the same backbone.

Notable choices
- Each part has its own `DistributedDataParallel`, which gives every process the part's weights in process 0 and
  averages its gradients during the backward pass.
- Each process trains on batches of its own: there is one shard of recordings for each. All processes together take the
  step that one process would take on the mean of their losses.
- The training loss in the log is the mean over the processes.
- Any process can validate at any time, without the others: that needs no gradients, so it does not use the wrappers.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from labs.vla.dataset import Batch
from labs.vla.heads import mean_over_steps
from labs.vla.normalization import ActionStatistics
from labs.vla.policy import OBSERVATION_KEYS, Policy


class Backbone(Policy):
    """The policy up to its head: observations to the feature that a head reads, (B, D)."""

    def forward(self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor) -> Tensor:
        return self.encode(pixel_values, input_ids, attention_mask, state)


class SplitPolicy(nn.Module):
    """A backbone and a head. The head reads a feature; its `predict` gives normalised actions. Both may be wrapped."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.action_statistics = ActionStatistics.tabletop()

    def feature(self, batch: Batch) -> Tensor:
        """What the head reads, (B, D)."""
        return self.backbone(**{name: batch[name] for name in OBSERVATION_KEYS})

    def error(self, predicted: Tensor, batch: Batch) -> Tensor:
        """Smooth L1 of the normalised chunk (B, H, A), a scalar; the mean over the steps that are not padding."""
        target = self.action_statistics.normalize(batch["action"])
        error = F.smooth_l1_loss(predicted, target, beta=0.1, reduction="none")
        return mean_over_steps(error.mean(dim=-1), batch["action_is_pad"])

    @torch.no_grad()
    def predict(self, batch: Batch) -> Tensor:
        """The action chunk for observations, (B, H, A) in environment units, from a policy without wrappers."""
        return self.action_statistics.unnormalize(self.head.predict(self.feature(batch)))


def build_policy(seed: int) -> SplitPolicy:
    """The pretrained backbone, and a new head that is drawn from `seed`."""
    backbone = Backbone.from_base(seed=seed)
    head = backbone.head
    del backbone.head
    return SplitPolicy(backbone, head)


def wrap(policy: SplitPolicy) -> SplitPolicy:
    """The policy as each process trains it, with wrappers. All processes get the weights of process 0."""
    return SplitPolicy(DistributedDataParallel(policy.backbone), DistributedDataParallel(policy.head))


def unwrap(policy: SplitPolicy) -> SplitPolicy:
    """The policy inside the wrappers. Both have the same parameters: training one trains the other."""
    return SplitPolicy(policy.backbone.module, policy.head.module)


def training_loss(policy: SplitPolicy, batch: Batch) -> Tensor:
    """The loss of this process's batch for a wrapped policy, a scalar."""
    predicted = policy.head.module.predict(policy.feature(batch))
    return policy.error(predicted, batch)


def train(policy: SplitPolicy, optimizer: torch.optim.Optimizer, batches: Iterable[Batch]) -> list[float]:
    """Train a wrapped policy one step on each of this process's batches, in training mode.

    All processes have equally many batches. Returns the mean loss of all processes, for each step.
    """
    losses = []
    policy.train()
    for batch in batches:
        loss = training_loss(policy, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(mean_over_processes(loss))
    return losses


def mean_over_processes(loss: Tensor) -> float:
    """A loss, averaged over all processes; every process must call this."""
    total = loss.detach().clone()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def validation_loss(policy: SplitPolicy, batch: Batch) -> float:
    """The loss of a wrapped policy on a batch, in evaluation mode, in which it is left. No other process takes part."""
    inner = unwrap(policy.eval())
    with torch.no_grad():
        return inner.error(inner.head.predict(inner.feature(batch)), batch).item()
