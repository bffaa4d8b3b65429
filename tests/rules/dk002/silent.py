"""Losses whose operands have equal shapes, and differences that broadcast on purpose."""

import torch
from torch import nn
from torch.nn import functional as F


def _loss_of(compute, model=None, batch=None):
    return {
        "model": model or nn.Linear(3, 2),
        "batch": batch or {"x": torch.randn(5, 3), "y": torch.randn(5, 2)},
        "loss_fn": lambda model, batch: compute(model(batch["x"]), batch["y"]),
    }


def equal_shapes():
    return _loss_of(lambda prediction, target: ((prediction - target) ** 2).mean() + F.l1_loss(prediction, target))


def batch_of_one():
    batch = {"x": torch.randn(1, 3), "y": torch.randn(1)}
    return _loss_of(lambda prediction, target: (prediction - target).square().mean(), nn.Linear(3, 1), batch)


def pairwise_distances():
    def compute(features, _):
        distances = (features[:, None] - features[None, :].detach()).square().sum(-1)
        return distances.mean()

    return _loss_of(compute)


def centred_by_its_own_mean():
    return _loss_of(lambda p, t: ((p - p.detach().mean(0, keepdim=True)).square()).mean() + (p - t).abs().mean())


def quantiles_against_one_target():
    quantiles = torch.tensor([0.1, 0.5, 0.9])

    def compute(prediction, target):  # (B, Q) against (B,)
        error = target.unsqueeze(-1) - prediction
        return torch.maximum(quantiles * error, (quantiles - 1) * error).mean()

    return _loss_of(compute, nn.Linear(3, 3), {"x": torch.randn(5, 3), "y": torch.randn(5)})


def scalar_target():
    def discriminator_loss(prediction, target):
        return (prediction - torch.tensor(1.0)).square().mean() + (prediction - 1).square().mean()

    return _loss_of(discriminator_loss)


def relative_positions_inside_the_model():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.slope = nn.Parameter(torch.ones(()))
            self.head = nn.Linear(3, 2)

        def forward(self, x):
            positions = torch.arange(len(x), dtype=torch.float32)
            bias = (positions[:, None] - positions).abs() * self.slope
            return self.head(torch.softmax(-bias, -1) @ x)

    return _loss_of(lambda p, t: F.mse_loss(p, t), Attention())


def metric_without_gradient():
    def compute(prediction, target):
        with torch.no_grad():
            (prediction - target[:, 0]).abs().mean()
        return (prediction - target[:, :1]).square().mean()

    return _loss_of(compute, nn.Linear(3, 1))


def token_loss():
    batch = {"x": torch.randn(5, 3), "y": torch.randint(0, 7, (5,))}
    return _loss_of(lambda logits, labels: F.cross_entropy(logits, labels), nn.Linear(3, 7), batch)


def normalised_input():
    class Normalising(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, 2)
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x):
            return self.head(x - self.mean)

    return _loss_of(lambda p, t: F.huber_loss(p, t), Normalising())


def statistics_taken_off_both_sides():
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, 2)
            self.register_buffer("mean", torch.zeros(2))

        def forward(self, x, y):
            return {"loss": ((self.head(x) - self.mean) - (y - self.mean)).square().mean()}

    return {"model": Policy(), "batch": {"x": torch.randn(5, 3), "y": torch.randn(5, 2)}}


def statistics_held_outside_the_model():
    mean = torch.zeros(2)
    return _loss_of(lambda prediction, target: ((prediction - mean) - (target - mean)).abs().mean())


def likelihood_of_a_learnt_mean():
    class Gaussian(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean = nn.Parameter(torch.zeros(2))

        def forward(self, y):
            return {"loss": (y - self.mean).square().mean()}

    return {"model": Gaussian(), "batch": {"y": torch.randn(5, 2)}}


def likelihood_under_a_prior_with_a_mean_for_each_feature():
    prior = torch.distributions.Normal(torch.zeros(4), torch.ones(4))

    return {
        "model": nn.Linear(6, 4),
        "batch": torch.randn(8, 6),
        "loss_fn": lambda model, batch: -prior.log_prob(model(batch)).sum(1).mean(),
    }


def distance_to_a_fixed_centre():
    """One-class learning: the centre has one number for each feature, and was computed before training."""
    centre = torch.randn(4)
    return {
        "model": nn.Linear(6, 4),
        "batch": torch.randn(8, 6),
        "loss_fn": lambda model, batch: (model(batch) - centre).square().sum(1).mean(),
    }


def feature_transforms_close_to_the_identity():
    """A regulariser: the product of each sample's matrix with its transpose, against one identity matrix."""

    def regularised(model, batch):
        transform = model(batch).view(-1, 3, 3)
        return (transform @ transform.mT - torch.eye(3)).square().sum((1, 2)).mean()

    return {"model": nn.Linear(6, 9), "batch": torch.randn(8, 6), "loss_fn": regularised}


def correlation_within_each_sample_against_a_scaled_identity():
    def decorrelated(model, batch):
        features = model(batch).view(-1, 3, 4)
        wanted = torch.eye(3) * torch.full((3, 3), 0.5)
        return torch.norm(features @ features.mT / 4 - wanted, dim=(1, 2)).mean()

    return {"model": nn.Linear(6, 12), "batch": torch.randn(8, 6), "loss_fn": decorrelated}
