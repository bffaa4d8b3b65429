"""Data whose dropped columns are not used, and loaders that drop none."""

import torch
from torch import nn


class _RemovesColumns:
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
            "episode": torch.tensor(index),
            "noise": torch.randn((), generator=generator),
        }
        return {column: sample[column] for column in ("state", "action", *self.columns)}


def _stack(samples):
    return {key: torch.stack([sample[key] for sample in samples]) for key in samples[0]}


class _Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.drop = nn.Dropout(0.5)

    def forward(self, state, action, **ignored):
        return {"loss": (self.head(self.drop(self.norm(self.body(state)))) - action).square().mean()}


class _Strict(_Policy):
    def forward(self, state, action):
        return super().forward(state, action)


def _fixture(model, columns, collate=None, **more):
    data = _Episodes(*columns)
    collate = collate or _RemovesColumns(_stack, ["state", "action"])
    loader = torch.utils.data.DataLoader(data, 4, collate_fn=collate)
    return {"model": model, "batch": _stack([data[0], data[1]]), "dataloader": loader, **more}


def dropped_columns_are_ignored_by_forward():
    return _fixture(_Policy(), ("episode", "noise"))


def dropped_columns_would_be_refused_by_forward():
    """The model runs only if the column is dropped."""
    return _fixture(_Strict(), ("episode", "noise"), loss_fn=lambda model, batch: model(**batch)["loss"])


def nothing_is_dropped():
    return _fixture(_Policy(), ())


def loss_draws_random_numbers():
    def loss_fn(model, batch):
        return model(batch["state"], batch["action"] + 0.1 * torch.randn_like(batch["action"]))["loss"]

    return _fixture(_Policy(), ("noise",), loss_fn=loss_fn)


def loader_without_a_trainer():
    return _fixture(_Policy(), ("noise",), collate=_stack, expect={"not_examined": "drops no columns"})


def neither_way_gives_a_loss():
    def loss_fn(model, batch):
        raise RuntimeError("no camera")

    return _fixture(_Policy(), ("noise",), loss_fn=loss_fn, expect={"not_examined": "neither with nor without"})
