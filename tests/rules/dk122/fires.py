"""Losses in which a term that does not know the targets makes the gradient."""

import torch
from torch import nn


def _policy():
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))


def entropy_bonus_that_was_to_be_small():
    def loss_fn(model, batch):
        policy = torch.distributions.Categorical(logits=model(batch["obs"]))
        gain = (policy.log_prob(batch["act"]) * batch["adv"]).mean()
        bonus = policy.entropy().mean()  # DK122
        return -gain - 1e4 * bonus

    batch = {"obs": torch.randn(32, 4), "act": torch.randint(0, 3, (32,)), "adv": torch.randn(32)}
    expect = {"severity": "warning", "message": "does not depend on the targets (`adv` and `act`)"}
    return {"model": _policy(), "batch": batch, "loss_fn": loss_fn, "expect": expect}


def penalty_of_the_weights():
    def loss_fn(model, batch):
        error = nn.functional.mse_loss(model(batch["x"]), batch["y"])
        penalty = sum(p.square().sum() for p in model.parameters())  # DK122
        return error + 1e5 * penalty

    batch = {"x": torch.randn(16, 4), "y": torch.randn(16, 3)}
    return {"model": _policy(), "batch": batch, "loss_fn": loss_fn, "expect": {"severity": "warning"}}


def penalty_that_is_added_in_place():
    def loss_fn(model, batch):
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        smooth = model(batch[0]).diff(dim=0).square().sum()  # DK122
        loss += 1e4 * smooth
        return loss

    batch = (torch.randn(16, 4), torch.randint(0, 3, (16,)))
    return {"model": _policy(), "batch": batch, "loss_fn": loss_fn}


def penalty_of_many_layers_in_one_expression():
    model = nn.Sequential(*[nn.Linear(6, 6) for _ in range(8)])

    def loss_fn(model, batch):
        error = nn.functional.mse_loss(model(batch["x"]), batch["y"])
        return error + sum(1e5 * p.square().sum() for p in model.parameters())  # DK122

    batch = {"x": torch.randn(16, 6), "y": torch.randn(16, 6)}
    return {"model": model, "batch": batch, "loss_fn": loss_fn}
