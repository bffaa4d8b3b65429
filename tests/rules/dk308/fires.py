"""Losses that receive probabilities instead of logits."""

import torch
import torch.nn.functional as F
from torch import nn


def _batch(classes=5):
    return {"x": torch.randn(6, 4), "labels": torch.randint(0, classes, (6,))}


def softmax_at_the_end_of_the_model():
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["labels"])  # DK308

    model = nn.Sequential(nn.Linear(4, 5), nn.Softmax(dim=-1))
    return {"model": model, "batch": _batch(), "loss_fn": loss_fn, "expect": {"severity": "error"}}


def per_token_through_a_module():
    criterion = nn.CrossEntropyLoss()

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, x, labels):
            probabilities = self.head(x).softmax(-1)  # (B, T, C)
            return {"loss": criterion(probabilities.flatten(0, 1), labels.flatten())}  # DK308

    return {"model": Tagger(), "batch": {"x": torch.randn(2, 6, 4), "labels": torch.randint(0, 3, (2, 6))}}


def sigmoid_before_a_loss_with_logits():
    def loss_fn(model, batch):
        closed = torch.sigmoid(model(batch["x"])).squeeze(-1)
        return F.binary_cross_entropy_with_logits(closed, batch["gripper"])  # DK308

    batch = {"x": torch.randn(6, 4), "gripper": torch.randint(0, 2, (6,)).float()}
    return {"model": nn.Linear(4, 1), "batch": batch, "loss_fn": loss_fn, "expect": {"message": "sigmoid"}}


def likelihood_of_probabilities():
    def loss_fn(model, batch):
        return F.nll_loss(F.softmax(model(batch["x"]), dim=1), batch["labels"])  # DK308

    return {"model": nn.Linear(4, 5), "batch": _batch(), "loss_fn": loss_fn, "expect": {"message": "log-probabilities"}}


def found_while_training():
    batch = _batch()

    def loop(model, optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch["x"]).softmax(-1), batch["labels"])  # DK308
            loss.backward()
            optimizer.step()

    model = nn.Linear(4, 5)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1), "loop": loop}
