"""Targets that belong to other rows."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def inputs_and_labels_sorted_apart():
    x = torch.randn(200, 6)
    labels = (x[:, 0] > 0).long()[torch.randperm(200)]
    return {
        "model": nn.Linear(6, 2),
        "dataloader": DataLoader(TensorDataset(x, labels), batch_size=16),
        "loss_fn": lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        "expect": {"severity": "info", "message": "Over 200 samples, entry `1` can"},
    }


def actions_of_other_episodes():
    from labs.vla.dataset import collate, demonstrations
    from labs.vla.policy import Policy

    frames = demonstrations(160, 0)
    order = np.random.default_rng(0).permutation(160)
    batches = []
    for start in range(0, 160, 16):
        batch = collate(frames, range(start, start + 16))
        other = collate(frames, order[start : start + 16])
        batches.append(batch | {"action": other["action"], "action_is_pad": other["action_is_pad"]})
    return {"model": Policy(), "dataloader": batches, "expect": {"message": "Over 160 samples, `action` can"}}
