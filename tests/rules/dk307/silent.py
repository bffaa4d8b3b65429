"""Batches in which there is something to learn, even if little."""

import torch
from torch import nn


def _classes(labels):
    return {
        "model": nn.Linear(4, 5),
        "batch": {"x": torch.randn(len(labels), 4), "labels": labels},
        "loss_fn": lambda model, batch: nn.functional.cross_entropy(model(batch["x"]), batch["labels"]),
    }


def small_batch_of_one_class():
    return _classes(torch.ones(4, dtype=torch.long))


def one_sample():
    return _classes(torch.tensor([3]))


def one_row_without_targets():
    ids = torch.randint(3, 60, (3, 8))
    labels = ids.clone()
    labels[1], labels[:, :5] = -100, -100

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(64, 8), nn.Linear(8, 64)

        def forward(self, input_ids, labels):
            logits = self.head(self.embedding(input_ids))
            return {"loss": nn.functional.cross_entropy(logits.transpose(1, 2), labels)}

    return {"model": Model(), "batch": {"input_ids": ids, "labels": labels}}


def gripper_that_never_closes_beside_moving_joints():
    action = torch.randn(8, 3)
    action[:, 2] = -1
    return {
        "model": nn.Linear(4, 3),
        "batch": {"x": torch.randn(8, 4), "action": action},
        "loss_fn": lambda model, batch: (model(batch["x"]) - batch["action"]).abs().mean(),
    }


def no_targets_known_by_name():
    return {
        "model": nn.Linear(4, 3),
        "batch": torch.randn(8, 4),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": {"not_examined": "neither labels nor a target action"},
    }
