"""Validation without a graph, and passes in eval mode whose graph is used."""

import copy

import torch
from torch import nn
from torch.nn import functional as F


def _program(loop, model=None):
    model = model or nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01), "loop": loop}


def _step(model, optimizer):
    optimizer.zero_grad()
    F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 2)).backward()
    optimizer.step()


def under_no_grad_or_inference_mode():
    def loop(model, optimizer):
        for epoch in range(4):
            model.train()
            _step(model, optimizer)
            model.eval()
            with torch.no_grad() if epoch % 2 else torch.inference_mode():
                for _ in range(3):
                    model(torch.randn(4, 3))

    return _program(loop)


def trained_in_eval_mode_on_purpose():
    def loop(model, optimizer):
        model.eval()
        for _ in range(6):
            _step(model, optimizer)

    return _program(loop)


def adversarial_examples():
    def loop(model, optimizer):
        for _ in range(5):
            model.eval()
            x = torch.randn(4, 3, requires_grad=True)
            (slope,) = torch.autograd.grad(model(x).sum(), x)
            model.train()
            optimizer.zero_grad()
            F.mse_loss(model(x.detach() + 0.1 * slope.sign()), torch.randn(4, 2)).backward()
            optimizer.step()

    return _program(loop)


def accumulated_in_eval_mode_over_several_batches():
    def loop(model, optimizer):
        model.eval()
        for _ in range(4):
            optimizer.zero_grad()
            losses = [model(torch.randn(4, 3)).square().mean() for _ in range(3)]
            sum(losses).backward()
            optimizer.step()

    return _program(loop)


class Distilled(nn.Module):
    """A frozen teacher in eval mode beside a student that trains."""

    def __init__(self):
        super().__init__()
        self.student = nn.Linear(3, 2)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False).eval()

    def forward(self, x):
        return F.mse_loss(self.student(x), self.teacher(x))


def frozen_teacher():
    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).backward()
            optimizer.step()
            model.teacher(torch.randn(4, 3))

    return _program(loop, Distilled())


def evaluated_under_no_grad_at_the_very_end():
    def loop(model, optimizer):
        _step(model, optimizer)
        model.eval()
        with torch.no_grad():
            for _ in range(3):
                model(torch.randn(4, 3))

    return _program(loop)


def one_sanity_check_before_training():
    def loop(model, optimizer):
        model.eval()
        assert model(torch.randn(4, 3)).shape == (4, 2)
        model.train()
        for _ in range(4):
            _step(model, optimizer)

    return _program(loop)
