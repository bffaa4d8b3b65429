"""Deep stacks in which the size of values does not change."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.vision, self.head = nn.Linear(16, 32), head

    def forward(self, x, action):
        return {"loss": (self.head(self.vision(x)) - action).square().mean()}


def _program(head):
    return {"model": Policy(head), "batch": {"x": torch.randn(32, 16), "action": torch.randn(32, 4)}}


def layers_with_their_gain():
    layers = [layer for _ in range(10) for layer in (nn.Linear(32, 32), nn.ReLU())]
    for layer in layers[::2]:
        nn.init.kaiming_normal_(layer.weight)
    return _program(nn.Sequential(*layers, nn.Linear(32, 4)))


def large_everywhere():
    program = layers_with_their_gain()
    return program | {"loss_fn": lambda model, batch: 1e12 * model(**batch)["loss"]}


def large_weights_behind_norms():
    layers = [layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU())]
    for layer in layers[::3]:
        nn.init.normal_(layer.weight, std=5.0)
    return _program(nn.Sequential(*layers, nn.Linear(32, 4)))


def one_large_layer_among_equal_ones():
    program = layers_with_their_gain()
    with torch.no_grad():
        program["model"].head[8].weight.mul_(1e5)
        program["model"].head[10].weight.mul_(1e-5)
    return program


def sum_of_residuals_without_a_norm():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(32, 32)

        def forward(self, x):
            return x + self.inner(x).relu()

    return _program(nn.Sequential(*(Block() for _ in range(10)), nn.Linear(32, 4)))


def convolutions_with_batch_norm():
    layers = [nn.Conv2d(3, 8, 3, padding=1)]
    for _ in range(5):
        layers += [nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    return {
        "model": model,
        "batch": torch.randn(4, 3, 8, 8),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
    }


def decoder_with_sixteen_layers():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=16, n_head=2)
    ids = torch.randint(0, 32, (4, 8))
    return {"model": GPT2LMHeadModel(config), "batch": {"input_ids": ids, "labels": ids}}
