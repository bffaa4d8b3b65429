"""Validation without `model.eval()`."""

import torch
from torch import nn
from torch.nn import functional as F


def _program(loop, *layers, **expect):
    torch.manual_seed(0)
    layers = layers or (nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1))
    model = nn.Sequential(nn.Linear(3, 8), *layers, nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


def _train(model, optimizer, steps=4):
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 2)).backward()
        optimizer.step()


@torch.no_grad()
def _validate(model, batches=3):
    return sum(F.mse_loss(model(torch.randn(4, 3)), torch.randn(4, 2)).item() for _ in range(batches))  # DK510


def no_grad_taken_for_eval():
    def loop(model, optimizer):
        for _ in range(3):
            _train(model, optimizer)
            _validate(model)

    message = "After step 4, 3 passes without gradients ran in training mode: they changed the running statistics"
    return _program(loop, module="1", severity="warning", message=message)


def once_after_training_in_inference_mode():
    def loop(model, optimizer):
        _train(model, optimizer, steps=6)
        with torch.inference_mode():
            for batch in torch.randn(5, 4, 3):
                model(batch)  # DK510

    return _program(loop, severity="warning", message="After step 6, 5 passes")


def trained_in_training_mode_by_a_helper_that_switches_back_too_early():
    def loop(model, optimizer):
        for _ in range(3):
            _train(model, optimizer)
            model.eval()
            _validate(model, batches=1)
            model.train()
            _validate(model, batches=2)

    return _program(loop, severity="warning", message="2 passes without gradients")


def dropout_alone():
    def loop(model, optimizer):
        for _ in range(2):
            _train(model, optimizer)
            _validate(model)

    message = "1 dropout module was active"
    return _program(loop, nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.2), module="", severity="info", message=message)
