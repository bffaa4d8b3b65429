"""Steps that need more memory than the budget."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import debugkit


def _mlp(**declared):
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 4))
    return {
        "model": model,
        "batch": {"x": torch.randn(256, 64)},
        "loss_fn": lambda model, batch: model(batch["x"]).square().mean(),
        "optimizer": torch.optim.AdamW(model.parameters()),
        "declare": debugkit.Declare(**declared),
    }


def activations_above_the_budget():
    return {
        **_mlp(memory_budget=1 << 20),
        "expect": {"module": "1", "severity": "warning", "message": "the budget is 1.0 MiB (declared)"},
    }


def optimizer_state_alone_above_the_budget():
    return {
        **_mlp(memory_budget=1 << 18),
        "expect": {"severity": "error", "message": "for parameters, gradients and optimizer state"},
    }


def language_model():
    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, vocab_size=50
    )
    ids = torch.randint(0, 50, (16, 64))
    return {
        "model": LlamaForCausalLM(config),
        "batch": {"input_ids": ids, "labels": ids},
        "declare": debugkit.Declare(memory_budget=1 << 20),
        "expect": {"severity": "warning"},
    }
