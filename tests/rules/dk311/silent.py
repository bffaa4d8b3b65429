"""Splits that share only samples that are alike by nature."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, random_split


def _program(train, validation=None, **expect):
    return {
        "model": nn.Linear(6, 2),
        "batch": [torch.randn(2, 6)],
        "dataloader": {"train": train} | ({"validation": validation} if validation is not None else {}),
        "loss_fn": lambda model, batch: model(batch[0].float()).square().mean(),
        "expect": expect,
    }


def random_split_of_one_data_set():
    generator = torch.Generator().manual_seed(0)
    train, validation = random_split(TensorDataset(torch.randn(20, 6)), [15, 5], generator=generator)
    return _program(DataLoader(train, batch_size=4, shuffle=True), DataLoader(validation, batch_size=4))


def two_data_sets():
    train, validation = (TensorDataset(torch.randn(20, 6)) for _ in range(2))
    return _program(DataLoader(train, batch_size=4), DataLoader(validation, batch_size=4))


def few_states_that_repeat_by_nature():
    states = torch.eye(6)
    train, validation = (TensorDataset(states[torch.randint(0, 6, (40,))]) for _ in range(2))
    return _program(DataLoader(train, batch_size=8), DataLoader(validation, batch_size=8))


def instructions_of_one_number():
    train, validation = (TensorDataset(torch.randint(0, 100, (12,))) for _ in range(2))
    program = _program(DataLoader(train, batch_size=4), DataLoader(validation, batch_size=4))
    return program | {"expect": {"not_examined": "enough content"}}


def blank_images_of_a_missing_camera():
    train, validation = (torch.cat([torch.randn(6, 6), torch.zeros(2, 6)]) for _ in range(2))
    return _program(DataLoader(TensorDataset(train), batch_size=4), DataLoader(TensorDataset(validation), batch_size=4))


def streams():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(torch.randn(8, 6))

    return _program(DataLoader(Stream(), batch_size=4), DataLoader(Stream(), batch_size=4)) | {
        "loss_fn": lambda model, batch: model(batch[0]).square().mean()
    }


def one_loader():
    data = TensorDataset(torch.randn(8, 6))
    return _program(DataLoader(data, batch_size=4), not_examined="There is no second loader")


def sequences_of_other_lengths_that_share_beginnings():
    """Without their padding these are still different: one is the beginning of the other, or has another value."""

    def collate(samples):
        return (pad_sequence(samples, batch_first=True, padding_value=0),)

    chance = torch.Generator().manual_seed(0)
    train = [torch.randint(1, 50, (5 + index % 4,), generator=chance) for index in range(16)]
    validation = [torch.cat([one, one[:2]]) for one in train[:8]] + [
        torch.cat([one[:-1], one[:1] + 50]) for one in train[8:]
    ]
    return _program(
        DataLoader(train, batch_size=4, collate_fn=collate),
        DataLoader(validation, batch_size=4, collate_fn=collate),
    ) | {"loss_fn": lambda model, batch: model(batch[0].float().mean(1, keepdim=True).expand(-1, 6)).square().mean()}
