"""Losses of several terms with very different sizes, as in correct programs."""

import torch
from torch import nn


def _policy():
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))


def _regression(loss_fn, why=None, model=None):
    batch = {"x": torch.randn(16, 4), "y": torch.randn(16, 3)}
    expect = {"not_examined": why} if why else {}
    return {"model": model or _policy(), "batch": batch, "loss_fn": loss_fn, "expect": expect}


def small_penalty_beside_a_large_error():
    def loss_fn(model, batch):
        penalty = sum(p.square().sum() for p in model.parameters())
        return 1e3 * nn.functional.mse_loss(model(batch["x"]), batch["y"]) + 1e-4 * penalty

    return _regression(loss_fn)


def two_errors_of_different_units():
    """Both depend on the targets: millimetres and radians."""

    def loss_fn(model, batch):
        error = (model(batch["x"]) - batch["y"]).square().mean(0)
        return 1e6 * error[0] + error[1]

    return _regression(loss_fn)


def penalty_of_weights_that_no_target_reaches():
    """A large gradient, but in a network of its own."""

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.curious = _policy(), nn.Linear(4, 4)

        def forward(self, x):
            return self.body(x), self.curious(x)

    def loss_fn(model, batch):
        action, guess = model(batch["x"])
        return nn.functional.mse_loss(action, batch["y"]) + 1e5 * (guess - batch["x"]).square().sum()

    return _regression(loss_fn, model=Policy())


def large_value_with_a_small_gradient():
    """A level that hardly depends on the weights."""

    def loss_fn(model, batch):
        outputs = model(batch["x"])
        level = (1e3 + 1e-3 * outputs.mean()).square()
        return level + nn.functional.mse_loss(outputs, batch["y"])

    return _regression(loss_fn)


def autoencoder_without_targets():
    def loss_fn(model, batch):
        hidden = model(batch["x"])
        return (hidden.sum(1) - batch["x"].sum(1)).square().mean() + 1e5 * hidden.square().mean()

    return _regression(loss_fn, "there are no targets")


def one_term():
    return _regression(lambda model, batch: nn.functional.mse_loss(model(batch["x"]), batch["y"]), "not a sum of terms")


def weight_that_is_still_zero():
    """The error is ramped up; until then the other term trains alone."""

    def loss_fn(model, batch):
        outputs = model(batch["x"])
        return 0.0 * nn.functional.mse_loss(outputs, batch["y"]) + outputs.square().mean()

    return _regression(loss_fn, "there are no targets")


def margin_that_all_samples_keep():
    def loss_fn(model, batch):
        outputs = model(batch["x"])
        error = (0.1 - (outputs - batch["y"] - 100).square()).relu().mean()
        return error + outputs.square().mean()

    return _regression(loss_fn, "there are no targets")


def bonus_of_the_usual_size():
    def loss_fn(model, batch):
        policy = torch.distributions.Categorical(logits=model(batch["obs"]))
        return -(policy.log_prob(batch["act"]) * batch["adv"]).mean() - 0.01 * policy.entropy().mean()

    batch = {"obs": torch.randn(32, 4), "act": torch.randint(0, 3, (32,)), "adv": torch.randn(32)}
    return {"model": _policy(), "batch": batch, "loss_fn": loss_fn}
