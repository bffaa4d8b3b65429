"""A policy whose language model trains in less memory: each MLP keeps three tensors for backward instead of four.

Llama's MLP is `down(silu(gate(x)) * up(x))`. Autograd alone keeps the gate (for silu), silu(gate) and up (for the
product) and the product itself (for `down`). But silu(gate) is cheap to compute again:

    x (B, T, D) ─┬─ gate_proj ── gate (B, T, F) ─┐
                 └─ up_proj ──── up (B, T, F) ───┴─ silu(gate) * up ── (B, T, F) ── down_proj ── (B, T, D)

Notable choices
- One autograd.Function for the gated activation, as in fused kernels: it keeps its two inputs and nothing else.
- The weights are the stock MLP's own, under the same names: the base checkpoint loads, and a checkpoint made here loads
  into a stock policy.
- The output is bit for bit that of the stock MLP, also in half precision and under autocast, so the evaluation of a
  checkpoint does not change.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labs.vla.policy import Policy


class GatedActivation(torch.autograd.Function):
    """silu(gate) * up, elementwise; keeps gate and up for backward, and recomputes silu(gate) there."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        """Any shape, the same for both."""
        ctx.save_for_backward(gate, up)
        return F.silu(gate) * up

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of gate and up, at any gate, from `gradient`, which may have any layout and is only read."""
        gate, up = ctx.saved_tensors
        sigmoid = torch.sigmoid(gate)
        for_gate = gradient * up * sigmoid * (1 + gate * (1 - sigmoid))
        for_up = gradient * gate * sigmoid
        return for_gate, for_up


def gated_activation(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, differentiable in both; keeps two tensors for backward."""
    return GatedActivation.apply(gate, up)


class MemorySavingMLP(nn.Module):
    """Llama's MLP with `gated_activation`; uses the layers of the MLP that it replaces."""

    def __init__(self, stock: nn.Module) -> None:
        super().__init__()
        self.gate_proj = stock.gate_proj
        self.up_proj = stock.up_proj
        self.down_proj = stock.down_proj

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        return self.down_proj(gated_activation(self.gate_proj(hidden), self.up_proj(hidden)))


def build_policy(seed: int) -> Policy:
    """The pretrained base with a fresh action head, and a memory-saving MLP in every layer of the language model."""
    policy = Policy.from_base(seed=seed)
    for layer in policy.language_model.layers:
        layer.mlp = MemorySavingMLP(layer.mlp)
    return policy
