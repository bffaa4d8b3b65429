"""Finite batches, masks of minus infinity, and loaders that must not be read."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def _loss(model, batch):
    return model(batch[0]).square().mean()


def additive_mask():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = nn.Linear(3, 1)

        def forward(self, x, attention_mask):
            return {"loss": (self.score(x)[..., 0] + attention_mask).softmax(-1).square().mean()}

    mask = torch.zeros(2, 5)
    mask[:, 3:] = float("-inf")
    return {"model": Attention(), "batch": {"x": torch.randn(2, 5, 3), "attention_mask": mask}}


def large_but_finite_and_integers():
    batch = (torch.randn(4, 3) * 1e30, torch.randint(0, 9, (4,)), torch.tensor([True, False]))
    return {"model": nn.Linear(3, 2), "batch": batch, "loss_fn": lambda model, batch: model(batch[0]).mean()}


def shuffling_loader_with_its_own_generator():
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(torch.randn(12, 3)), batch_size=4, shuffle=True, generator=generator)
    return {"model": nn.Linear(3, 2), "batch": [torch.randn(4, 3)], "dataloader": loader, "loss_fn": _loss}


def workers_that_stay():
    loader = DataLoader(
        TensorDataset(torch.randn(12, 3)),
        batch_size=4,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    return {"model": nn.Linear(3, 2), "dataloader": loader, "loss_fn": _loss}


def iterator_that_can_be_read_once():
    once = iter([(torch.full((2, 3), float("nan")),)])
    return {"model": nn.Linear(3, 2), "batch": [torch.randn(4, 3)], "dataloader": once, "loss_fn": _loss}
