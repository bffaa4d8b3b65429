"""Models that were changed after their optimizer was built."""

import copy

import torch
from torch import nn

import debugkit


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return {"loss": self.head(self.vision(x)).square().mean()}


def _program(model, optimizer, **more):
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "optimizer": optimizer, **more}


def head_replaced_after_the_optimizer_was_built():
    model = Policy()
    optimizer = torch.optim.AdamW(model.parameters())
    model.head = nn.Linear(4, 7)
    return _program(model, optimizer, expect={"module": "head", "severity": "error", "message": "holds 2 tensors"})


def embedding_exchanged_for_a_larger_one_after_the_optimizer_was_built():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters())
    model.set_input_embeddings(nn.Embedding(48, 16))
    ids = torch.randint(0, 40, (2, 6))
    return {
        "model": model,
        "batch": {"input_ids": ids, "labels": ids},
        "optimizer": optimizer,
        "expect": {"parameter": "model.embed_tokens.weight"},
    }


def optimizer_of_the_model_before_it_was_copied():
    model = Policy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return _program(copy.deepcopy(model), optimizer, expect={"message": "holds 4 tensors", "severity": "error"})


def another_optimizer_may_hold_the_new_head():
    model = Policy()
    optimizer = torch.optim.AdamW(model.parameters())
    model.head = nn.Linear(4, 7)
    return _program(model, optimizer, declare=debugkit.Declare(all_optimizers=False), expect={"severity": "info"})


def seen_in_a_running_loop():
    def loop(model, optimizer):
        model.head = nn.Linear(4, 2)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 3))["loss"].backward()
            optimizer.step()

    model = Policy()
    return _program(model, torch.optim.SGD(model.parameters(), lr=0.1), loop=loop, expect={"module": "head"})
