"""Loaders whose labels come in runs for a reason, or that shuffle."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler, TensorDataset, random_split


def _program(loader, classes=4, loss=F.cross_entropy, features=8, **more):
    model = nn.Sequential(nn.Flatten(), nn.Linear(features, classes))
    return {"model": model, "loss_fn": lambda m, b: loss(m(b[0]), b[1]), "dataloader": loader, **more}


def _sorted(samples=400, run=100):
    return TensorDataset(torch.randn(samples, 8), torch.arange(samples) // run)


def shuffled_once_when_built():
    order = torch.randperm(400)
    data = TensorDataset(torch.randn(400, 8), (torch.arange(400) // 100)[order])
    return _program(DataLoader(data, 16))


def random_split_of_a_sorted_data_set():
    return _program(DataLoader(random_split(_sorted(), [300, 100])[0], 16))


def unbalanced_classes():
    data = TensorDataset(torch.randn(1000, 8), (torch.rand(1000) < 0.03).long())
    return _program(DataLoader(data, 8))


def shuffling_loader():
    return _program(DataLoader(_sorted(), 16, shuffle=True))


def sampler_of_weights():
    loader = DataLoader(_sorted(), 16, sampler=RandomSampler(_sorted(), replacement=True))
    return _program(loader)


def own_batches_of_several_classes():
    class Balanced(Sampler):
        def __iter__(self):
            return iter(torch.arange(400).reshape(4, 100).T.tolist())

        def __len__(self):
            return 100

    return _program(DataLoader(_sorted(), batch_sampler=Balanced()), expect={"not_examined": "in order"})


def iterable_that_shuffles():
    class Stream(IterableDataset):
        def __iter__(self):
            return ((torch.randn(8), int(i) // 100) for i in torch.randperm(400))

    return _program(DataLoader(Stream(), 16), expect={"not_examined": "iterated"})


def groups_of_one_class_within_a_batch():
    labels = torch.randint(0, 20, (100,)).repeat_interleave(4)
    return _program(DataLoader(TensorDataset(torch.randn(400, 8), labels), 32), classes=20)


def runs_shorter_than_a_batch():
    labels = torch.randint(0, 20, (40,)).repeat_interleave(10)
    return _program(DataLoader(TensorDataset(torch.randn(400, 8), labels), 64), classes=20)


def groups_in_batches_of_one():
    labels = torch.randint(0, 20, (100,)).repeat_interleave(4)
    return _program(DataLoader(TensorDataset(torch.randn(400, 8), labels)), classes=20)


def only_the_validation_loader_is_sorted():
    data = TensorDataset(torch.randn(400, 8), torch.randint(0, 4, (400,)))
    return _program({"train": DataLoader(data, 16), "validation": DataLoader(_sorted(), 16)})


def overlapping_windows_of_a_recording():
    recording = torch.randn(420, 3)
    windows = recording.unfold(0, 20, 1).transpose(1, 2).contiguous()  # (401, 20, 3)
    return _program(DataLoader(TensorDataset(windows, torch.arange(401) // 101), 16), features=60)


def full_batch():
    return _program(DataLoader(_sorted(), 400), expect={"not_examined": "400 samples"})


def regression_over_time():
    data = TensorDataset(torch.randn(400, 8), torch.linspace(0, 1, 400)[:, None])
    return _program(DataLoader(data, 16), classes=1, loss=F.mse_loss, expect={"not_examined": "numbers"})


def tokens_in_order():
    ids = torch.arange(400)[:, None].expand(400, 6) // 100
    data = TensorDataset(torch.randn(400, 6, 8), ids)
    program = _program(DataLoader(data, 16), expect={"not_examined": "one class for each"})
    loss = lambda m, b: F.cross_entropy(m(b[0]).flatten(0, 1), b[1].flatten())  # noqa: E731
    return {**program, "model": nn.Linear(8, 4), "loss_fn": loss}
