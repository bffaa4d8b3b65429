"""Steps that fit into the budget, and steps without a budget."""

import torch
from torch import nn

import debugkit


def _program(budget, loss_fn=None):
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 4))
    return {
        "model": model,
        "batch": {"x": torch.randn(32, 64)},
        "loss_fn": loss_fn or (lambda model, batch: model(batch["x"]).square().mean()),
        "optimizer": torch.optim.AdamW(model.parameters()),
        "declare": debugkit.Declare(memory_budget=budget),
    }


def a_budget_that_is_enough():
    return _program(8 << 20)


def code_that_reads_values():
    def loss_fn(model, batch):
        loss = model(batch["x"]).square().mean()
        return loss * 0.5 if loss.item() > 1e9 else loss

    return _program(8 << 20, loss_fn)


def no_budget():
    return {**_program(None), "expect": {"not_examined": "There is no memory budget"}}
