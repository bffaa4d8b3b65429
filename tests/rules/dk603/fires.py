"""Validation that records a graph."""

import torch
from torch import nn
from torch.nn import functional as F


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.encoder(x))

    def predict(self, x):
        hidden = self.encoder(x)  # DK603
        return self.head(hidden)


def _program(loop, **expect):
    model = Policy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"severity": "warning", **expect}}


def _train(model, optimizer, steps=2):
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 2)).backward()
        optimizer.step()


def evaluated_without_no_grad():
    def loop(model, optimizer):
        for _ in range(3):
            _train(model, optimizer)
            model.eval()
            for _ in range(2):
                F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 2)).item()  # DK603

    return _program(loop, module="", message="calls of the model in eval mode")


def outputs_collected_for_a_metric():
    def loop(model, optimizer):
        predictions = []
        for _ in range(3):
            _train(model, optimizer)
            model.eval()
            predictions += [model(torch.randn(4, 3)) for _ in range(2)]  # DK603
        assert len(predictions) == 6

    return _program(loop, message="still in memory")


def validated_once_at_the_very_end():
    def loop(model, optimizer):
        _train(model, optimizer)
        model.eval()
        for _ in range(3):
            F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 2)).item()  # DK603

    return _program(loop, message="3 calls of the model")


def a_method_that_calls_the_parts():
    def loop(model, optimizer):
        for _ in range(3):
            _train(model, optimizer)
            model.eval()
            for _ in range(2):
                model.predict(torch.randn(4, 3)).mean().item()

    return _program(loop, count=1, message="calls of `encoder` and of 1 other module in eval mode")


def moves_with_a_graph_after_many_steps():
    def loop(model, optimizer):
        for step in range(40):
            _train(model, optimizer, steps=1)
            with torch.no_grad():
                for _ in range(20):
                    model(torch.randn(1, 3))
            if step >= 36:
                model.eval()
                model(torch.randn(4, 3)).sum().item()  # DK603
                model.train()

    return _program(loop, message="calls of the model in eval mode")
