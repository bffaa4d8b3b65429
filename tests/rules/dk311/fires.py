"""Splits that share samples."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Subset, TensorDataset


def _program(train, validation, **expect):
    return {
        "model": nn.Linear(6, 2),
        "dataloader": {"train": train, "validation": validation},
        "loss_fn": lambda model, batch: model(batch[0]).square().mean(),
        "expect": expect,
    }


def ranges_that_overlap_by_index():
    data = TensorDataset(torch.randn(20, 6))
    return _program(
        DataLoader(Subset(data, range(16)), batch_size=4),
        DataLoader(Subset(data, range(14, 20)), batch_size=4),
        severity="error",
        message="2 of 6 samples of the validation loader are also in the train loader (compared by index)",
    )


def training_on_everything():
    data = TensorDataset(torch.randn(20, 6))
    return _program(DataLoader(data, batch_size=4), DataLoader(Subset(data, [3, 5]), batch_size=2), message="2 of 2")


def copies_found_by_content():
    train, action = torch.randn(16, 6), torch.randn(16, 2)
    validation = torch.cat([torch.randn(5, 6), train[3:6]])
    return _program(
        DataLoader(TensorDataset(train, action), batch_size=4, shuffle=True),
        DataLoader(TensorDataset(validation, torch.randn(8, 2) * 0), batch_size=4),
        severity="error",
        message="3 of 8",
    )


def _padded(sequences, side="right", **options):
    def collate(samples):  # DK311
        ids = pad_sequence(samples, batch_first=True, padding_value=0, padding_side=side)
        return {"input_ids": ids, "attention_mask": (ids != 0).long()}

    return DataLoader(sequences, collate_fn=collate, **options)


def _sequences(count, seed):
    drawn = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 12, (count,), generator=drawn).tolist()
    return [torch.randint(1, 50, (length,), generator=drawn) for length in lengths]


def _of_the_ids(model, batch):
    return model(batch["input_ids"].float().mean(1, keepdim=True).expand(-1, 6)).square().mean()


def the_same_sequences_padded_to_other_lengths():
    train, validation = _sequences(24, 1), _sequences(8, 2)
    program = _program(
        _padded(train, batch_size=4),
        _padded([*validation, *train[3:9]], batch_size=4),
        severity="error",
        message="6 of 14 samples of the validation loader",
    )
    return program | {"loss_fn": _of_the_ids}


def the_same_sequences_padded_on_the_left_and_on_the_right():
    train, validation = _sequences(24, 1), _sequences(8, 2)
    program = _program(
        _padded(train, batch_size=4),
        _padded([*validation, *train[3:9]], side="left", batch_size=4),
        message="6 of 14 samples of the validation loader",
    )
    return program | {"loss_fn": _of_the_ids}
