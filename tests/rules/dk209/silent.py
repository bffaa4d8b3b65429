"""Gradients that are small, zero or in half precision, and lose nothing."""

import torch
from torch import nn


def _policy():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))


def _loss(model, batch):
    return (model(batch).float() - 1).square().mean()


def _loop(model, scaler=None, dtype=torch.float16, factor=1.0, clip=False):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = scaler or torch.amp.GradScaler("cpu", enabled=False)

    def loop(model, optimizer):
        for _ in range(6):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=dtype):
                action = model(torch.randn(64, 8))
            scaler.scale((action.float() - 1).square().mean() * factor).backward()
            if clip:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-6)
            scaler.step(optimizer)
            scaler.update()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def half_weights_and_a_loss_of_usual_size():
    return {"model": _policy().half(), "batch": torch.randn(16, 8).half(), "loss_fn": _loss}


def bfloat16_and_a_tiny_loss():
    return {
        "model": _policy().bfloat16(),
        "batch": torch.randn(16, 8).bfloat16(),
        "loss_fn": lambda model, batch: _loss(model, batch) * 1e-9,
    }


def float32_and_a_tiny_loss():
    return {
        "model": _policy(),
        "batch": torch.randn(16, 8),
        "loss_fn": lambda model, batch: _loss(model, batch) * 1e-12,
    }


def loss_scaled_by_hand():
    return {
        "model": _policy().half(),
        "batch": torch.randn(16, 8).half(),
        "loss_fn": lambda model, batch: _loss(model, batch) * 1e-3 * 4096,
    }


def scaler_over_a_tiny_loss():
    return _loop(_policy(), torch.amp.GradScaler("cpu", init_scale=2.0**16), factor=1e-3)


def scaler_and_clipping_to_a_tiny_norm():
    """Clipped gradients are float32 and small on purpose."""
    return _loop(_policy(), torch.amp.GradScaler("cpu", init_scale=2.0**10), clip=True)


def bfloat16_autocast_and_a_tiny_loss():
    return _loop(_policy(), dtype=torch.bfloat16, factor=1e-9)


def autocast_in_an_unknown_loop():
    """check() does not see the loop, so it cannot know whether there is a scaler."""

    def loss_fn(model, batch):
        with torch.autocast("cpu", dtype=torch.float16):
            return _loss(model, batch) * 1e-3

    return {
        "model": _policy(),
        "batch": torch.randn(16, 8),
        "loss_fn": loss_fn,
        "expect": {"not_examined": "use debugkit.watch()"},
    }


def policy_that_is_already_correct():
    """The loss is 0, and so is every gradient."""
    model = _policy().half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            out = model(torch.randn(16, 8).half()).float()
            (out - out.detach()).square().mean().backward()
            optimizer.step()

    return {"model": model, "optimizer": optimizer, "loop": loop}


def inactive_units():
    """Most of the gradient is exactly 0. Zeros from ReLU and padding are not lost values."""
    model = _policy().half()
    nn.init.constant_(model[0].bias, -1.0)
    return {
        "model": model,
        "batch": torch.randn(32, 8).half(),
        "loss_fn": lambda model, batch: (model(batch).float()[:8] - 1).square().mean(),
    }


def frozen_half_tower():
    """The tower is float16 and frozen, so none of it is trained."""
    model = nn.ModuleDict({"vision": nn.Linear(8, 16).half(), "head": nn.Linear(16, 2)})
    model["vision"].requires_grad_(False)
    return {
        "model": model,
        "batch": torch.randn(16, 8).half(),
        "loss_fn": lambda model, batch: model["head"](model["vision"](batch).float()).square().mean() * 1e-9,
    }


def a_tiny_bert_in_float16_with_a_scaled_loss():
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, num_labels=3
    )
    return {
        "model": BertForSequenceClassification(config).half(),
        "batch": {"input_ids": torch.randint(40, (4, 7)), "labels": torch.randint(3, (4,))},
        "loss_fn": lambda model, batch: model(**batch).loss.float() * 1024,
    }


def improbable_words():
    """The gradients of most logits, which are most of all values, are below float16's normal range."""
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.Linear(32, 5000))
    nn.init.normal_(model[3].weight, std=2.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop(model, optimizer):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                logits = model(torch.randn(16, 8))
            loss = nn.functional.cross_entropy(logits.float(), torch.randint(5000, (16,)))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return {"model": model, "optimizer": optimizer, "loop": loop}
