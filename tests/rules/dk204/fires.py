"""16-bit weights whose updates are rounded away."""

import torch
from torch import nn


def _policy(dtype):
    return nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 2)).to(dtype)


def _loss(model, batch):
    return (model(batch.to(next(model.parameters()).dtype)).float() - 1).square().mean()


def fine_tuning_in_bfloat16():
    model = _policy(torch.bfloat16)
    return {
        "model": model,
        "batch": torch.randn(16, 8),
        "loss_fn": _loss,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-5),
        "expect": {"severity": "warning", "parameter": "0.weight", "message": "AdamW updates stay bit for bit"},
    }


def sgd_with_momentum():
    model = _policy(torch.bfloat16)
    return {
        "model": model,
        "batch": torch.randn(16, 8),
        "loss_fn": _loss,
        "optimizer": torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9),
        "expect": {"parameter": "0.weight"},
    }


def one_of_two_towers():
    """The float32 head changes; the bfloat16 tower does not."""
    model = nn.ModuleDict({"vision": nn.Linear(8, 32).bfloat16(), "head": nn.Linear(32, 2)})
    return {
        "model": model,
        "batch": torch.randn(16, 8),
        "loss_fn": lambda model, batch: model["head"](model["vision"](batch.bfloat16()).float()).square().mean(),
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-5),
        "expect": {"parameter": "vision.weight"},
    }


def in_a_loop():
    model = _policy(torch.float16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6, eps=1e-4)

    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            (_loss(model, torch.randn(16, 8)) * 1000).backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"parameter": "0.weight"}}


def a_tiny_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    ids = torch.randint(40, (4, 9))
    return {
        "model": model,
        "batch": {"input_ids": ids, "labels": ids},
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-6),
        "expect": {"message": "bfloat16 weights"},
    }
