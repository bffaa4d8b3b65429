"""Data with columns that the loss needs and that a Trainer-like collator removes."""

import torch
from torch import nn


class _RemovesColumns:
    """A Hugging Face Trainer's wrapper around the collator, reduced to the attributes that the rule looks for."""

    def __init__(self, data_collator, signature_columns):
        self.data_collator, self.signature_columns = data_collator, signature_columns

    def __call__(self, samples):
        return self.data_collator([{k: v for k, v in s.items() if k in self.signature_columns} for s in samples])


class _Episodes(torch.utils.data.Dataset):
    def __init__(self, *columns):
        self.columns = columns

    def __len__(self):
        return 8

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        sample = {
            "state": torch.randn(3, generator=generator),
            "action": torch.randn(2, generator=generator),
            "weight": torch.rand((), generator=generator) + 0.5,
            "offset": torch.rand(2, generator=generator) + 0.5,
            "pixels": torch.rand(3, generator=generator),
            "episode": torch.tensor(index),
        }
        return {column: sample[column] for column in ("state", "action", *self.columns)}


def _stack(samples):
    return {key: torch.stack([sample[key] for sample in samples]) for key in samples[0]}


class _Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, state, action, **more):
        error = (self.head(state) - action).square()
        if "weight" in more:
            error = error * more["weight"][:, None]
        return {"loss": error.mean()}


class _Strict(_Policy):
    def forward(self, state, action):
        return super().forward(state, action)


def _fixture(model, columns, expect, collate=_stack, loss_fn=None):
    data = _Episodes(*columns)
    loader = torch.utils.data.DataLoader(data, 4, collate_fn=_RemovesColumns(collate, ["state", "action", "labels"]))
    batch = collate([data[0], data[1]])
    return {"model": model, "batch": batch, "dataloader": loader, "loss_fn": loss_fn, "expect": expect}


def forward_reads_it_from_its_keywords():
    return _fixture(_Policy(), ("weight", "episode"), {"message": "the column `weight`, but the loss needs it"})


def compute_loss_pops_it():
    """Another dropped column would make `forward` raise."""

    def loss_fn(model, batch):
        weight = batch.pop("weight", None)
        loss = model(**batch)["loss"]
        return loss if weight is None else loss * weight.mean()

    return _fixture(_Strict(), ("weight", "episode"), {"message": "`weight`"}, loss_fn=loss_fn)


def collator_makes_an_input_of_it():
    def collate(samples):
        batch = _stack(samples)
        batch["state"] = batch["state"] + batch.pop("pixels")
        return batch

    expect = {"message": "without it, the loss cannot be computed (KeyError: 'pixels')", "severity": "error"}
    return _fixture(_Strict(), ("pixels",), expect, collate=collate)


def two_are_needed():
    def loss_fn(model, batch):
        weight, offset = batch.pop("weight", 1.0), batch.pop("offset", torch.zeros(2))
        batch["action"] = batch["action"] + offset
        return model(**batch)["loss"] * torch.as_tensor(weight).mean()

    expect = {"message": "the columns `weight` and `offset`, but the loss needs them"}
    return _fixture(_Strict(), ("weight", "offset"), expect, loss_fn=loss_fn)
