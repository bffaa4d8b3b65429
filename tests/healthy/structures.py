"""Unusual structures: masks of -inf, two kinds of checkpointing, wrappers, hooks, ways to return and to be called."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from healthy.language_models import llama, text
from healthy.program import Program, program


class CausalAttention(nn.Module):
    """Attention written out, with a mask of minus infinity above the diagonal."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.position = nn.Parameter(torch.randn(8, 16) * 0.02)
        self.project = nn.Linear(16, 48)
        self.say = nn.Linear(16, 20)
        self.register_buffer("mask", torch.full((8, 8), float("-inf")).triu(1), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.words(ids) + self.position
        query, key, value = self.project(hidden).chunk(3, -1)
        scores = query @ key.transpose(1, 2) / 4 + self.mask  # (B, L, L)
        return self.say(hidden + scores.softmax(-1) @ value)


def next_token_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Cross entropy of the next id."""
    logits = model(batch["ids"])[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), batch["ids"][:, 1:].flatten())


@program
def mask_of_minus_infinity() -> Program:
    return Program(CausalAttention(), lambda: {"ids": torch.randint(20, (4, 8))}, next_token_loss)


@program
def masked_logits_of_forbidden_actions() -> Program:
    """Actions that are not allowed get -inf before the softmax."""

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        logits = model(batch["x"]).masked_fill(batch["forbidden"], float("-inf"))
        return F.cross_entropy(logits, batch["choice"])

    def draw() -> dict[str, Tensor]:
        choice = torch.arange(8) % 5
        forbidden = (torch.rand(8, 5) < 0.4).scatter(1, choice[:, None], False)
        return {"x": torch.randn(8, 6), "choice": choice, "forbidden": forbidden}

    return Program(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5)), draw, loss_fn)


class Residual(nn.Module):
    """Four blocks, each run as `call` says."""

    def __init__(self, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.call = call
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.1)) for _ in range(4)
        )
        self.read, self.head = nn.Linear(6, 16), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.read(x)
        for block in self.blocks:
            hidden = hidden + self.call(block, hidden)
        return self.head(hidden)


def vectors() -> dict[str, Tensor]:
    """Eight vectors and what to make of them."""
    return {"x": torch.randn(8, 6), "y": torch.randn(8, 2)}


def vector_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Mean squared error."""
    return F.mse_loss(model(batch["x"]), batch["y"])


@program
def checkpointing_without_reentry() -> Program:
    return Program(Residual(lambda block, x: checkpoint(block, x, use_reentrant=False)), vectors, vector_loss)


@program
def checkpointing_with_reentry() -> Program:
    return Program(Residual(lambda block, x: checkpoint(block, x, use_reentrant=True)), vectors, vector_loss)


@program
def checkpointed_llama() -> Program:
    model = llama()
    with warnings.catch_warnings():  # a newer name for the same
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable()
    return Program(model, text())


@program
def checkpointed_sequence() -> Program:
    body = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint_sequential(self.body, 2, x, use_reentrant=False)

    return Program(Whole(), vectors, vector_loss)


@program
def layers_dropped_at_random() -> Program:
    """Stochastic depth: a block that is skipped has no gradient in that step."""

    def maybe(block: nn.Module, x: Tensor) -> Tensor:
        return block(x) if not block.training or torch.rand(()) > 0.3 else torch.zeros_like(x)

    return Program(Residual(maybe), vectors, vector_loss)


@program
def one_block_used_three_times() -> Program:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read, self.block, self.head = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.read(x)
            for _ in range(3):
                hidden = hidden + self.block(hidden).relu()
            return self.head(hidden)

    return Program(Shared(), vectors, vector_loss)


class Prediction(NamedTuple):
    """What the next program returns."""

    mean: Tensor
    extras: dict[str, list[Tensor]]


@program
def nested_output_and_a_method_that_is_not_forward() -> Program:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleDict({"read": nn.Linear(6, 16), "head": nn.Linear(16, 2)})

        def act(self, x: Tensor) -> Prediction:
            hidden = self.parts["read"](x).relu()
            return Prediction(self.parts["head"](hidden), {"hidden": [hidden]})

    return Program(Nested(), vectors, lambda model, batch: F.mse_loss(model.act(batch["x"]).mean, batch["y"]))


@program
def activations_kept_by_a_hook_for_a_penalty() -> Program:
    model = nn.Sequential(nn.Linear(6, 16), nn.SELU(), nn.Linear(16, 2))
    kept: list[Tensor] = []
    model[1].register_forward_hook(lambda _module, _inputs, output: kept.append(output))

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        kept.clear()
        return vector_loss(model, batch) + 1e-3 * kept[0].square().mean()

    return Program(model, vectors, loss_fn)


@program
def fitting_pairwise_distances() -> Program:
    """An outer difference (B, 1, D) - (1, B, D): broadcasting that is meant."""

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        place = model(batch["x"])
        distance = (place[:, None] - place[None]).square().sum(-1)  # (B, B)
        wanted = (batch["y"][:, None] - batch["y"][None]).square().sum(-1)
        return (distance - wanted).abs().mean()

    return Program(nn.Linear(6, 2), vectors, loss_fn)


@program
def double_precision_and_half_precision_parts() -> Program:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read = nn.Linear(6, 16).bfloat16().requires_grad_(False)
            self.head = nn.Linear(16, 2).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.read(x.bfloat16()).double()).float()

    return Program(Mixed(), vectors, vector_loss)
