"""Training loaders that read a sorted data set in order."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset


def _program(loader, classes=4, loss=F.cross_entropy, **more):
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, classes))
    return {"model": model, "loss_fn": lambda m, b: loss(m(b[0]), b[1]), "dataloader": loader, **more}


def one_folder_per_class():
    class Folders(Dataset):
        def __len__(self):
            return 400

        def __getitem__(self, index):  # DK318
            return torch.randn(8), index // 100

    return _program(DataLoader(Folders(), 16), expect={"severity": "warning", "message": "entry `1`"})


def with_workers_and_a_validation_loader():
    class Folders(Dataset):
        def __len__(self):
            return 3000

        def __getitem__(self, index):  # DK318
            return torch.randn(8), index // 100

    loaders = {"train": DataLoader(Folders(), 16, num_workers=2), "validation": DataLoader(Folders(), 16)}
    return _program(loaders, classes=30, expect={"message": "`1`"})


def positives_after_negatives():
    labels = torch.arange(512) // 400
    samples = [{"x": torch.randn(8), "labels": label.float()} for label in labels]
    return {
        "model": nn.Linear(8, 1),
        "loss_fn": lambda m, b: F.binary_cross_entropy_with_logits(m(b["x"]).squeeze(1), b["labels"]),
        "dataloader": DataLoader(samples, 32),
        "expect": {"message": "`labels`"},
    }


def subset_of_a_sorted_data_set():
    data = TensorDataset(torch.randn(1000, 8), torch.arange(1000) // 250)
    return _program(DataLoader(Subset(data, range(0, 1000, 2)), 8))


def large_batches():
    data = TensorDataset(torch.randn(4000, 8), torch.arange(4000) // 1000)
    return _program(DataLoader(data, 512))


def small_data_set():
    data = TensorDataset(torch.randn(160, 8), torch.arange(160) // 40)
    return _program(DataLoader(data, 16))
