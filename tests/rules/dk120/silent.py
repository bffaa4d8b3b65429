"""Usual initialisations, and large weights that do no harm."""

import torch
from torch import nn
from torch.nn import functional as F

NOT_NEW = {"not_examined": "No layer has weights that look newly drawn"}


def _arguments(model, batch=None, **expect):
    return {
        "model": model,
        "batch": torch.randn(16, 32) if batch is None else batch,
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": expect,
    }


def _mlp():
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


def _initialised(draw):
    model = _mlp()
    for module in model.modules():
        if isinstance(module, nn.Linear):
            draw(module.weight)
    return _arguments(model)


def pytorchs_own():
    return _arguments(_mlp())


def kaiming():
    return _initialised(lambda weight: nn.init.kaiming_normal_(weight, nonlinearity="relu"))


def xavier_with_a_gain_of_two():
    return _initialised(lambda weight: nn.init.xavier_uniform_(weight, gain=2.0))


def orthogonal_with_a_small_head():
    model = _mlp()
    for module in (model[0], model[2]):
        nn.init.orthogonal_(module.weight, 2**0.5)
    nn.init.orthogonal_(model[4].weight, 0.01)
    return _arguments(model)


def deviation_of_gpt_2():
    return _initialised(lambda weight: nn.init.normal_(weight, std=0.02))


class Scaled(nn.Linear):
    """Equalised learning rates: the weights have a variance of one and are scaled in the forward pass."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        nn.init.normal_(self.weight)

    def forward(self, values):
        return F.linear(values, self.weight * self.in_features**-0.5, self.bias)


def weights_scaled_in_the_forward_pass():
    return _arguments(nn.Sequential(Scaled(32, 64), nn.ReLU(), Scaled(64, 64), nn.ReLU(), Scaled(64, 4)), **NOT_NEW)


def one_hot_inputs():
    model = nn.Sequential(nn.Linear(64, 32, bias=False), nn.GELU(), nn.Linear(32, 4))
    nn.init.normal_(model[0].weight)
    return _arguments(model, F.one_hot(torch.randint(64, (16,)), 64).float())


def random_features_that_are_frozen():
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4))
    nn.init.normal_(model[0].weight, std=10.0)
    model[0].requires_grad_(False)
    return _arguments(model)


def trained_weights_of_different_rows():
    model = _mlp()
    for module in model.modules():
        if isinstance(module, nn.Linear):
            rows = torch.rand(module.out_features, 1) * 2 + 0.2
            module.weight.data = torch.randn_like(module.weight) * rows
    return _arguments(model, **NOT_NEW)


def convolutions_of_a_generator():
    """As in DCGAN: a standard deviation of 0.02 at any width."""
    model = nn.Sequential(nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.LeakyReLU(0.2), nn.Conv2d(64, 4, 3))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.weight, 0.0, 0.02)
    return _arguments(model, torch.randn(4, 32, 8, 8))


def biases_of_rare_classes():
    """As in dense detectors: a bias of log(0.01) keeps the first focal loss small. The weights are small as well."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 5, 3))
    for module in (model[0], model[2]):
        nn.init.normal_(module.weight, 0.0, 0.01)
    nn.init.constant_(model[2].bias, -4.6)
    return _arguments(model, torch.randn(4, 3, 8, 8) * 0.5)
