"""Models that make confident predictions before any training."""

import torch
import torch.nn.functional as F
from torch import nn


def embedding_of_unit_variance_tied_to_the_head():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.norm, self.head = nn.Embedding(50, 64), nn.LayerNorm(64), nn.Linear(64, 50, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, input_ids, labels):
            logits = self.head(self.norm(self.embedding(input_ids)))
            return {"loss": F.cross_entropy(logits.transpose(1, 2)[..., :-1], labels[:, 1:])}  # DK312

    ids = torch.randint(0, 50, (4, 10))
    return {"model": Tied(), "batch": {"input_ids": ids, "labels": ids}, "expect": {"severity": "warning"}}


def raw_pixels_into_a_classifier():
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["image"]), batch["labels"])  # DK312

    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 10))
    batch = {"image": torch.randint(0, 256, (16, 3, 8, 8)).float(), "labels": torch.randint(0, 10, (16,))}
    return {"model": model, "batch": batch, "loss_fn": loss_fn, "expect": {"message": "each of the 10 classes"}}


def classifier_whose_first_loss_is_only_high():
    model = nn.Linear(4, 10)
    with torch.no_grad():
        model.weight.mul_(12)
    batch = {"x": torch.randn(64, 4), "labels": torch.randint(0, 10, (64,))}
    loss_fn = lambda model, batch: F.cross_entropy(model(batch["x"]), batch["labels"])  # noqa: E731  # DK312
    return {"model": model, "batch": batch, "loss_fn": loss_fn, "expect": {"severity": "info"}}
