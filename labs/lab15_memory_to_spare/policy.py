"""Fine-tuning on a small GPU: low-rank adapters beside frozen weights, and activations that are computed again.

    part                                               trains
    linear layers in the transformer layers of both    no; the adapter beside each does:  W x + (16 / rank) · B A x
    all other parts of `vision` and `language_model`   no
    projector, proprioception                          no
    head                                               yes, from scratch

Notable choices
- A starts at random and B at zero, so new adapters change nothing: before the first step, the policy computes exactly
  what it did without them. A's first gradient is therefore zero, and A begins to move one step after B.
- Every transformer layer is checkpointed. In training its forward pass keeps the layer's input alone; backward runs the
  layer a second time to compute the activations that it needs, one layer after the other. Loss and gradients are the
  same as without. In evaluation every layer runs once.
- The layers have no dropout, so the second forward pass needs no copy of the random state.
- Checkpoints store each parameter by its name and shape, so both stay as they are.
- Warnings of the libraries are left out, so that the log of a run is its losses.
"""

from __future__ import annotations

import warnings
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from labs.vla.policy import Policy
from labs.vla.randomness import private_randomness

warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\.|transformers\.")

RANK = 8
ALPHA = 16.0
"""An adapter's output is multiplied by ALPHA / rank, so that another rank needs no other learning rate."""


class Adapted(nn.Module):
    """A linear layer with an adapter beside it, (..., in) to (..., out)."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear
        self.a = nn.Linear(linear.in_features, rank, bias=False)
        self.b = nn.Linear(rank, linear.out_features, bias=False)
        self.scale = ALPHA / rank
        nn.init.zeros_(self.b.weight)

    def forward(self, features: Tensor) -> Tensor:
        """The layer's output, with what the adapter adds to it."""
        return self.linear(features) + self.scale * self.b(self.a(features))


def transformer_layers(policy: nn.Module) -> list[GradientCheckpointingLayer]:
    """The layers of the vision tower and of the language model."""
    return [module for module in policy.modules() if isinstance(module, GradientCheckpointingLayer)]


def add_adapters(policy: nn.Module, rank: int) -> None:
    """Put an adapter beside every linear layer of the transformer layers."""
    for layer in transformer_layers(policy):
        linears = {name: module for name, module in layer.named_modules() if isinstance(module, nn.Linear)}
        for name, linear in linears.items():
            parent, _, own = name.rpartition(".")
            setattr(layer.get_submodule(parent), own, Adapted(linear, rank))


def recompute_activations(policy: nn.Module) -> None:
    """Checkpoint every transformer layer."""
    for layer in transformer_layers(policy):
        layer.gradient_checkpointing = True
        layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=True, preserve_rng_state=False)


def adapt(policy: Policy, seed: int, rank: int = RANK, *, recompute: bool = True) -> None:
    """Prepare a policy of any size for fine-tuning, in place: frozen but for its head and new adapters.

    The adapters are drawn from `seed`, and the caller's random state does not change. With `recompute`, activations are
    computed again in backward; loss and gradients do not depend on it. Batches are left as they are.
    """
    policy.requires_grad_(False)
    policy.head.requires_grad_(True)
    with private_randomness(seed):
        add_adapters(policy, rank)
    if recompute:
        recompute_activations(policy)


def build_policy(seed: int, rank: int = RANK, *, recompute: bool = True) -> Policy:
    """The pretrained base with a new head and adapters, both drawn from `seed`."""
    policy = Policy.from_base(seed=seed)
    adapt(policy, seed, rank, recompute=recompute)
    return policy


@torch.no_grad()
def adapters(policy: nn.Module) -> dict[str, Tensor]:
    """Every A and B by its name, as saved after a run: copies without a graph, which later steps do not change."""
    named = {name: module for name, module in policy.named_modules() if isinstance(module, Adapted)}
    return {
        f"{name}.{matrix}": getattr(module, matrix).weight.clone()
        for name, module in named.items()
        for matrix in ("a", "b")
    }
