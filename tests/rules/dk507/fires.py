"""Losses whose micro-batches do not add up to the whole batch."""

import torch
from torch import nn
from torch.nn import functional as F
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


def _model():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def _draw():
    return torch.randn(6, 4), torch.randint(3, (6,))


def four_means_added_in_a_loop():
    def loop(model, optimizer):
        for micro in range(24):
            x, y = _draw()
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # DK507
            if micro % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()

    model = _model()
    expect = {"severity": "info", "message": "the gradient is 4 times that of the whole batch"}
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.05), "loop": loop, "expect": expect}


def two_means_and_a_penalty_added_and_clipped():
    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad(set_to_none=False)
            for _ in range(2):
                x, y = _draw()
                output = model(x)
                (F.cross_entropy(output, y) + 0.01 * output.square().mean()).backward()  # DK507
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()

    model = _model()
    expect = {"severity": "info", "message": "the clipped gradient is 2 times"}
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), 0.01), "loop": loop, "expect": expect}
