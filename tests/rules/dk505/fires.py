"""Training in eval mode."""

import contextlib

import torch
from torch import nn
from transformers import ViTConfig, ViTForImageClassification


def _policy():
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
    return model, torch.optim.AdamW(model.parameters())


def _train(model, optimizer, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()


def _evaluate(model):
    model.eval()  # DK505
    with torch.no_grad():
        model(torch.randn(4, 3))


def evaluation_leaves_eval_mode_behind():
    model, optimizer = _policy()

    def loop(model, optimizer):
        model.train()
        for _ in range(3):
            _train(model, optimizer)
            _evaluate(model)

    expect = {"message": "since step 3", "severity": "error"}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def evaluation_raised():
    model, optimizer = _policy()

    def evaluate(model):
        model.eval()  # DK505
        model(torch.randn(4, 5))
        model.train()

    def loop(model, optimizer):
        _train(model, optimizer)
        with contextlib.suppress(RuntimeError):
            evaluate(model)
        _train(model, optimizer, steps=4)

    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": {"message": "2 of 2"}}


def a_model_as_from_pretrained_returns_it():
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=8,
        patch_size=4,
        hidden_dropout_prob=0.1,
    )
    model = ViTForImageClassification(config).eval()
    optimizer = torch.optim.AdamW(model.parameters())

    def loop(model, optimizer):
        for _ in range(6):
            optimizer.zero_grad()
            model(pixel_values=torch.randn(2, 3, 8, 8), labels=torch.tensor([0, 1])).loss.backward()
            optimizer.step()  # DK505

    expect = {"message": "from the first step", "severity": "warning"}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}
