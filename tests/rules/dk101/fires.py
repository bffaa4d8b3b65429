"""Optimizers that do not hold every trainable parameter."""

import torch
from torch import nn

import debugkit


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return {"loss": self.head(self.vision(x)).square().mean()}


def _program(optimizer_of, **more):
    model = Policy()
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "optimizer": optimizer_of(model), **more}


def group_whose_pattern_matches_nothing():
    def groups(model):
        backbone = [p for name, p in model.named_parameters() if name.startswith("backbone")]
        head = [p for name, p in model.named_parameters() if name.startswith("head")]
        return torch.optim.AdamW([{"params": head}, {"params": backbone, "lr": 1e-5}])

    return _program(groups, expect={"module": "vision", "severity": "error", "message": "4 of 6"})


def one_parameter_forgotten():
    def weights_only(model):
        return torch.optim.SGD([p for name, p in model.named_parameters() if name != "head.bias"], lr=0.1)

    return _program(weights_only, expect={"parameter": "head.bias", "severity": "error"})


def two_optimizers_and_a_gap():
    def towers(model):
        first, last = model.vision[0].parameters(), model.head.parameters()
        return [torch.optim.SGD(first, lr=0.1), torch.optim.AdamW(last)]

    return _program(towers, expect={"module": "vision.2", "severity": "error"})


def not_every_optimizer_was_given():
    return _program(
        lambda model: torch.optim.SGD(model.head.parameters(), lr=0.1),
        declare=debugkit.Declare(all_optimizers=False),
        expect={"severity": "info"},
    )


def forgotten_but_unused():
    model = Policy()
    model.spare = nn.Linear(2, 2)
    used = [*model.vision.parameters(), *model.head.parameters()]
    expect = {"module": "spare", "severity": "info", "message": "no gradient"}
    optimizer = torch.optim.SGD(used, lr=0.1)
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "optimizer": optimizer, "expect": expect}


def heads_in_a_plain_list():
    class Listed(Policy):
        def __init__(self):
            super().__init__()
            self.heads = [nn.Linear(4, 2), nn.Linear(4, 2)]

        def forward(self, x):
            seen = self.vision(x)
            return {"loss": sum(head(seen).square().mean() for head in (self.head, *self.heads))}

    model = Listed()
    optimizer = torch.optim.RMSprop(model.parameters())  # DK101
    expect = {"parameter": "heads.0.weight", "severity": "error", "message": "4 parameters outside the model receive"}
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "optimizer": optimizer, "expect": expect}


def temperature_in_a_closure():
    scale = nn.Parameter(torch.ones(()))

    def loss_fn(model, batch):
        return model(**batch)["loss"] * scale.exp()

    return _program(
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        loss_fn=loss_fn,
        expect={"parameter": "scale", "severity": "error"},
    )
