"""Targets that depend on their inputs, even if weakly."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def _program(x, y, **expect):
    def loss_fn(model, batch):
        return model(batch[0].float()).square().mean()

    return {
        "model": nn.Linear(x.shape[1], 2),
        "dataloader": DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True),
        "loss_fn": loss_fn,
        "expect": expect,
    }


def one_noisy_relation_among_ten():
    x = torch.randn(256, 10)
    return _program(x, x[:, :1] + 1.5 * torch.randn(256, 1))


def classes_apart():
    x = torch.randn(128, 6)
    return _program(x, (x[:, 0] + x[:, 1] > 0).long())


def product_of_two_inputs():
    x = torch.randn(256, 3)
    return _program(x, x[:, :1] * x[:, 1:2])


def the_labs_demonstrations():
    from labs.vla.dataset import collate, demonstrations
    from labs.vla.policy import Policy

    frames = demonstrations(160, 0)
    batches = [collate(frames, range(start, start + 16)) for start in range(0, 160, 16)]
    return {"model": Policy(), "dataloader": batches}


def few_samples():
    return _program(torch.randn(32, 4), torch.randn(32, 1), not_examined="32 samples")


def text():
    ids = torch.randint(0, 9, (128, 5))
    return _program(ids, ids.clone(), not_examined="tokens of a text")
