"""Losses whose micro-batches do not add up to the whole batch."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from debugkit import Declare


def language_model_with_unequal_lengths():
    config = LlamaConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=32
    )
    ids = torch.randint(32, (4, 8))
    labels = ids.clone()
    labels[0, 2:] = -100
    return {
        "model": LlamaForCausalLM(config),
        "batch": {"input_ids": ids, "labels": labels},
        "declare": Declare(accumulation=2),
        "expect": {"severity": "error", "message": "unequal counts"},
    }


def summed_loss():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    return {
        "model": model,
        "batch": torch.randn(8, 4),
        "loss_fn": lambda model, state: model(state).square().sum(),
        "declare": Declare(accumulation=4),
        "expect": {"severity": "error", "message": "0.25 times the norm"},
    }


def padded_actions():
    """A mean over the unpadded steps of each chunk's micro-batch."""

    def loss(model, batch):
        error = (model(batch["state"]) - batch["action"]).square()
        return (error * batch["valid"]).sum() / batch["valid"].sum()

    valid = torch.ones(6, 3)
    valid[:2, 1:] = 0
    batch = {"state": torch.randn(6, 4), "action": torch.randn(6, 3), "valid": valid}
    declare = Declare(accumulation=3)
    return {"model": nn.Linear(4, 3), "batch": batch, "loss_fn": loss, "declare": declare}
