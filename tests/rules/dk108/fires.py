"""Backwards that are not the derivative, or not under all conditions."""

import torch
from torch import nn


class GatedActivation(torch.autograd.Function):
    """x · sigmoid(gate); its backward misses a factor of the sigmoid's derivative."""

    @staticmethod
    def forward(ctx, x, gate):
        ctx.save_for_backward(x, gate)
        return x * gate.sigmoid()

    @staticmethod
    def backward(ctx, gradient):  # DK108
        x, gate = ctx.saved_tensors
        return gradient * gate.sigmoid(), gradient * x * gate.sigmoid()  # without (1 - sigmoid)


class FlatWeights(torch.autograd.Function):
    """A linear map whose backward reads the incoming gradient in memory order."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx, gradient):  # DK108
        x, weight = ctx.saved_tensors
        flat = torch.as_strided(gradient, gradient.shape, (gradient.shape[1], 1))
        return flat @ weight, flat.T @ x


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.relu()

    @staticmethod
    def backward(ctx, gradient):  # DK108
        (x,) = ctx.saved_tensors
        return gradient.mul_(x > 0)


class SharedBuffer(torch.autograd.Function):
    kept: torch.Tensor

    @staticmethod
    def forward(_ctx, x):
        SharedBuffer.kept = x.detach()
        return x.square()

    @staticmethod
    def backward(_ctx, gradient):  # DK108
        return 2 * gradient * SharedBuffer.kept


class MeanFree(torch.autograd.Function):
    """Written with setup_context; its backward ignores that the mean depends on every element."""

    @staticmethod
    def forward(x, scale):
        return (x - x.mean(-1, keepdim=True)) * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[1]

    @staticmethod
    def backward(ctx, gradient):  # DK108
        return gradient * ctx.scale, None


mean_free = MeanFree.apply  # a reference that exists before the check replaces anything


class Policy(nn.Module):
    def __init__(self, activation, width=64, vision_width=48):
        super().__init__()
        self.vision, self.gate = nn.Linear(vision_width, width), nn.Linear(vision_width, width)
        self.head = nn.Linear(width, 7)
        self.activation = activation

    def forward(self, x, action):
        hidden = self.activation(self.vision(x), self.gate(x), self.head)
        return {"loss": (hidden - action).square().mean()}


def _program(activation, **expect):
    batch = {"x": torch.randn(16, 10, 48), "action": torch.randn(16, 10, 7)}
    return {"model": Policy(activation), "batch": batch, "expect": {"severity": "error", **expect}}


def product_rule_term_missing():
    return _program(lambda x, gate, head: head(GatedActivation.apply(x, gate)), message="for input 1 it returns")


def incoming_gradient_taken_for_contiguous():
    def linear(x, _gate, head):
        return FlatWeights.apply(x.flatten(0, 1), head.weight).unflatten(0, (16, 10))

    return _program(linear, message="if the incoming gradient is not contiguous")


def incoming_gradient_written_to():
    return _program(lambda x, _gate, head: head(InPlace.apply(x)), message="writes into the incoming gradient")


def state_kept_on_the_class():
    return _program(lambda x, _gate, head: head(SharedBuffer.apply(x)), message="used twice in one graph")


def mean_taken_for_a_constant():
    return _program(lambda x, _gate, head: head(mean_free(x, 2.0)), message="the finite difference is")
