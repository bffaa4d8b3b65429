"""Each parameter is held once, or never twice at the same time."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.head = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        return {"loss": self.head(self.vision(x)).square().mean()}


def _program(model, optimizer, **more):
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "optimizer": optimizer, **more}


def tied_weights():
    model = Policy()
    model.other = nn.Linear(4, 3)
    model.other.weight = model.head.weight
    return _program(model, torch.optim.AdamW(model.parameters()))


def two_optimizers_without_overlap():
    model = Policy()
    return _program(model, [torch.optim.AdamW(model.vision.parameters()), torch.optim.AdamW(model.head.parameters())])


def optimizer_that_wraps_another():
    class Lookahead(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner, self.defaults, self.state = inner, {}, inner.state
            self.param_groups = inner.param_groups

        def step(self, closure=None):
            return self.inner.step(closure)

    model = Policy()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    return _program(model, [Lookahead(inner), inner])


def new_optimizer_for_each_learning_rate():
    def loop(model, _):
        for rate in (1e-3, 3e-4, 1e-4, 3e-5, 1e-5):
            optimizer = torch.optim.Adam(model.parameters(), lr=rate)
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.randn(5, 3))["loss"].backward()
                optimizer.step()

    return {"model": Policy(), "loop": loop}


def adam_first_and_lbfgs_afterwards():
    def loop(model, optimizer):
        x = torch.randn(5, 3)

        def closure():
            optimizer.zero_grad()
            loss = model(x)["loss"]
            loss.backward()
            return loss

        for _ in range(3):
            closure()
            optimizer.step()
        second = torch.optim.LBFGS(model.parameters(), max_iter=2)
        for _ in range(3):
            second.step(closure)

    model = Policy()
    return _program(model, torch.optim.Adam(model.parameters()), loop=loop)
