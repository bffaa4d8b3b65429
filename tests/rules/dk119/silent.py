"""Backward calls that end before the parameters on purpose, and one that starts at a parameter."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def _program(loop, model=None):
    model = model or nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 2))
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3), "loop": loop}


def gradients_of_cached_features():
    """As GradCache: the loss gives gradients to the features, and these go through the model afterwards."""

    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            inputs = torch.randn(6, 3)
            with torch.no_grad():
                features = model(inputs)
            features.requires_grad_()
            (features @ features.T).logsumexp(dim=1).mean().backward()
            for part, gradient in zip(inputs.split(2), features.grad.split(2), strict=True):
                model(part).backward(gradient)
            optimizer.step()

    return _program(loop)


def gradients_written_by_hand():
    def loop(model, optimizer):
        for _ in range(5):
            prompt = torch.zeros(4, 3, requires_grad=True)
            F.mse_loss(prompt, torch.randn(4, 3)).backward()
            for parameter in model.parameters():
                parameter.grad = 1e-3 * torch.randn_like(parameter)
            optimizer.step()

    return _program(loop)


def inputs_are_optimized_before_each_step():
    def loop(model, optimizer):
        for _ in range(5):
            inputs = torch.randn(4, 3, requires_grad=True)
            inputs.square().mean().backward()
            optimizer.zero_grad()
            F.mse_loss(model(inputs.detach() + 0.1 * inputs.grad), torch.zeros(4, 2)).backward()
            optimizer.step()

    return _program(loop)


def whole_model_in_a_checkpoint():
    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            inputs = torch.randn(4, 3, requires_grad=True)
            checkpoint(model, inputs, use_reentrant=True).square().mean().backward()
            optimizer.step()

    return _program(loop)


class Offset(nn.Module):
    def __init__(self):
        super().__init__()
        self.offset = nn.Parameter(torch.ones(()))

    def forward(self):
        return self.offset


def loss_is_a_parameter():
    def loop(model, optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            model().backward()
            optimizer.step()

    return _program(loop, Offset())


def cached_features_and_a_second_pass_that_fails():
    """The loss of the features is small, and the loop ends before they go through the model."""

    def loop(model, optimizer):
        for step in range(4):
            optimizer.zero_grad()
            inputs = torch.randn(6, 3)
            features = model(inputs).detach().requires_grad_()
            (features @ features.T).logsumexp(dim=1).mean().backward()
            if step == 3:
                raise MemoryError
            model(inputs).backward(features.grad)
            optimizer.step()

    return {**_program(loop), "raises": MemoryError}
