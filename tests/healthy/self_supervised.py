"""Two views of one picture: stopped gradients, momentum encoders, in-batch negatives."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from healthy.program import STEPS, Program, program


def views() -> tuple[Tensor, Tensor]:
    """Two noisy looks at the same eight vectors."""
    x = torch.randn(8, 12)
    return x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)


class Siamese(nn.Module):
    """Encoder with batch norm, and a predictor."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
        self.predictor = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))


@program
def simsiam_with_a_stopped_gradient() -> Program:
    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        first, second = (model.encoder(view) for view in batch)
        ahead, back = model.predictor(first), model.predictor(second)
        return (
            -(F.cosine_similarity(ahead, second.detach()).mean() + F.cosine_similarity(back, first.detach()).mean()) / 2
        )

    return Program(Siamese(), views, loss_fn)


@program
def byol_with_a_momentum_encoder() -> Program:
    class Online(Siamese):
        def __init__(self) -> None:
            super().__init__()
            self.momentum = copy.deepcopy(self.encoder).requires_grad_(False)

    model = Online()

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        with torch.no_grad():
            goals = [F.normalize(model.momentum(view), dim=-1) for view in batch]
        guesses = [F.normalize(model.predictor(model.encoder(view)), dim=-1) for view in batch]
        return 2 - (guesses[0] * goals[1]).sum(-1).mean() - (guesses[1] * goals[0]).sum(-1).mean()

    def train(self: Program) -> None:
        assert isinstance(self.optimizer, torch.optim.Optimizer)
        for _ in range(STEPS):
            self.optimizer.zero_grad()
            self.loss(self.draw()).backward()
            self.optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(model.momentum.parameters(), model.encoder.parameters(), strict=True):
                    slow.mul_(0.99).add_(fast, alpha=0.01)

    return Program(model, views, loss_fn, train=train)


@program
def in_batch_negatives_with_a_learnt_temperature() -> Program:
    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image, self.text = nn.Linear(12, 16), nn.Linear(12, 16)
            self.log_scale = nn.Parameter(torch.tensor(2.6))

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        image, words = F.normalize(model.image(batch[0]), dim=-1), F.normalize(model.text(batch[1]), dim=-1)
        logits = model.log_scale.exp() * image @ words.T  # (B, B)
        own = torch.arange(len(logits), device=logits.device)
        return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2

    return Program(Towers(), views, loss_fn)


@program
def teacher_under_inference_mode() -> Program:
    """Distillation: the teacher's probabilities are the target of a soft cross entropy."""

    class Distilled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 5))
            self.teacher = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 5)).requires_grad_(False).eval()

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        with torch.no_grad():
            goal = (model.teacher(batch[0]) / 2).softmax(-1)
        return F.kl_div((model.student(batch[1]) / 2).log_softmax(-1), goal, reduction="batchmean") * 4

    return Program(Distilled(), views, loss_fn)
