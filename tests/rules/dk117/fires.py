"""Heads that were frozen together with the rest."""

import torch
from torch import nn
from torch.nn import functional as F


def _program(model, batch, loss_fn, **expect):
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    arguments = {"model": model, "batch": batch, "loss_fn": loss_fn, "optimizer": torch.optim.AdamW(trained)}
    return arguments | {"expect": {"severity": "warning"} | expect}


def _mse(model, batch):
    return F.mse_loss(model(batch["x"]), batch["action"])


def head_of_a_regression():
    model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 7))
    model[3].requires_grad_(False)
    batch = {"x": torch.randn(8, 6), "action": torch.randn(8, 7)}
    return _program(model, batch, _mse, module="3", message="224 weights are frozen")


class _Adapted(nn.Module):
    """A pretrained body with an adapter, and a new head."""

    def __init__(self):
        super().__init__()
        self.body = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        for layer in self.body:
            nn.init.normal_(layer.weight, std=0.3)
        self.down, self.up = nn.Linear(16, 4, bias=False), nn.Linear(4, 16, bias=False)
        self.norm, self.score = nn.LayerNorm(16), nn.Linear(16, 5)
        self.requires_grad_(False)
        for adapter in (self.down, self.up):
            adapter.requires_grad_(True)

    def forward(self, x):
        for layer in self.body:
            x = x + torch.tanh(layer(x) + self.up(self.down(x)))
        return self.score(self.norm(x))


def new_head_of_an_adapted_model():
    batch = {"x": torch.randn(8, 16), "label": torch.randint(5, (8,))}
    loss = lambda model, batch: F.cross_entropy(model(batch["x"]), batch["label"])  # noqa: E731
    return _program(_Adapted(), batch, loss, module="score", message="2 other parameters train")


def convolution_that_makes_the_logits():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1)).bfloat16()
    model[2].requires_grad_(False)
    batch = {"x": torch.randn(2, 3, 8, 8).bfloat16(), "label": torch.randint(4, (2, 8, 8))}
    loss = lambda model, batch: F.cross_entropy(model(batch["x"]).float(), batch["label"])  # noqa: E731
    return _program(model, batch, loss, module="2")


def one_of_two_heads_in_an_optimizer_that_holds_everything():
    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.arm, self.gripper = nn.Linear(6, 32), nn.Linear(32, 6), nn.Linear(32, 1)

        def forward(self, x):
            hidden = torch.relu(self.body(x))
            return torch.cat([self.arm(hidden), self.gripper(hidden)], dim=-1)

    model = TwoHeads()
    model.gripper.requires_grad_(False)
    batch = {"x": torch.randn(8, 6), "action": torch.randn(8, 7)}
    return _program(model, batch, _mse, module="gripper") | {"optimizer": torch.optim.AdamW(model.parameters())}


def embedding_that_alone_is_frozen():
    model = nn.Sequential(nn.Embedding(40, 16), nn.Flatten(), nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 5))
    model[0].requires_grad_(False)
    batch = {"x": torch.randint(40, (8, 4)), "label": torch.randint(5, (8,))}
    loss = lambda model, batch: F.cross_entropy(model(batch["x"]), batch["label"])  # noqa: E731
    return _program(
        model,
        batch,
        loss,
        module="0",
        severity="info",
        message="The 640 weights of module `0` are frozen as they were drawn",
    )


def weights_of_a_stem_whose_bias_trains():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 4),
    )
    model[0].weight.requires_grad_(False)
    batch = {"x": torch.randn(8, 3, 8, 8), "label": torch.randint(4, (8,))}
    loss = lambda model, batch: F.cross_entropy(model(batch["x"]), batch["label"])  # noqa: E731
    return _program(model, batch, loss, parameter="0.weight", message="all 2 other layers train")


def _trained(program, **expect):
    """The same in a loop."""
    batch, loss_fn = program.pop("batch"), program.pop("loss_fn")

    def loop(model, optimizer):
        for _ in range(9):
            optimizer.zero_grad()
            loss_fn(model, batch).backward()
            optimizer.step()

    return program | {"loop": loop, "expect": program["expect"] | expect}


def head_of_a_regression_in_a_loop():
    return _trained(head_of_a_regression())


def new_head_of_an_adapted_model_in_a_loop():
    return _trained(new_head_of_an_adapted_model())


def one_of_two_heads_in_a_loop():
    return _trained(one_of_two_heads_in_an_optimizer_that_holds_everything())


def weights_of_a_stem_whose_bias_trains_in_a_loop():
    return _trained(weights_of_a_stem_whose_bias_trains())
