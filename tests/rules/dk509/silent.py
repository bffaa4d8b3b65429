"""Healthy learning rates."""

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import LlamaConfig, LlamaForCausalLM


def _arguments(make, model=None):
    model = model or nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
    return {
        "model": model,
        "batch": {"state": torch.randn(12, 4), "action": torch.randn(12, 2)},
        "loss_fn": lambda model, batch: (model(batch["state"]) - batch["action"]).square().mean(),
        "optimizer": make(model.parameters()),
    }


def adam():
    return _arguments(lambda p: torch.optim.AdamW(p, lr=1e-3))


def small_for_fine_tuning():
    return _arguments(lambda p: torch.optim.AdamW(p, lr=1e-6))


def high_at_first():
    return _arguments(lambda p: torch.optim.Adam(p, lr=0.1))


def momentum():
    return _arguments(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))


def warm_up_that_starts_at_zero():
    arguments = _arguments(lambda p: torch.optim.AdamW(p, lr=1e-3))
    LambdaLR(arguments["optimizer"], lambda step: min(1.0, step / 100))
    return arguments


def one_group_at_zero():
    def make(parameters):
        first, *others = parameters
        return torch.optim.AdamW([{"params": [first], "lr": 0.0}, {"params": others}], lr=1e-3)

    return _arguments(make)


def language_model():
    config = LlamaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=32
    )
    model, ids = LlamaForCausalLM(config), torch.randint(32, (4, 8))
    batch = {"input_ids": ids, "labels": ids}
    return {"model": model, "batch": batch, "optimizer": torch.optim.AdamW(model.parameters(), lr=3e-4)}


def loss_at_its_floor():
    """The loss does not change at any learning rate."""
    arguments = _arguments(lambda p: torch.optim.SGD(p, lr=1e-3))
    return {**arguments, "loss_fn": lambda model, batch: 0.0 * model(batch["state"]).sum() + 1.0}


def two_optimizers_of_a_gan():
    model = nn.ModuleDict({"generator": nn.Linear(2, 3), "critic": nn.Linear(3, 1)})
    optimizers = [torch.optim.Adam(part.parameters(), lr=1e-3) for part in model.values()]

    def loss(model, noise):
        return model["critic"](model["generator"](noise)).mean()

    return {"model": model, "batch": torch.randn(6, 2), "loss_fn": loss, "optimizer": optimizers}
