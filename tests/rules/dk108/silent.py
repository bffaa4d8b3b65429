"""Backwards that are correct, or that differ on purpose."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return gradient * (s + x * s * (1 - s))


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return x.round()

    @staticmethod
    def backward(_ctx, gradient):
        return gradient


class LearnedStep(torch.autograd.Function):
    """A quantiser with a learned step size: both gradients are estimates by design."""

    @staticmethod
    def forward(ctx, x, step):
        ctx.save_for_backward(x, step)
        return (x / step).round() * step

    @staticmethod
    def backward(ctx, gradient):
        x, step = ctx.saved_tensors
        ratio = x / step
        return gradient, (gradient * (ratio.round() - ratio)).sum().reshape(step.shape)


class PassThroughClamp(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return x.clamp(-0.5, 0.5)

    @staticmethod
    def backward(_ctx, gradient):
        return gradient


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.strength * gradient, None


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient / (1 + 10 * ctx.saved_tensors[0].abs()) ** 2


class SingleNorm(torch.autograd.Function):
    """An RMS norm that computes in float32 for inputs of any dtype."""

    @staticmethod
    def forward(ctx, x, weight):
        root = (x.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        ctx.save_for_backward(x, weight, root)
        return (x.float() * root).to(x.dtype) * weight.float().to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        x, weight, root = ctx.saved_tensors
        normal, inner = x.float() * root, gradient.float() * weight.float()
        grad = root * (inner - normal * (inner * normal).mean(-1, keepdim=True))
        return grad.to(x.dtype), (gradient.float() * normal).sum(tuple(range(x.ndim - 1))).to(weight.dtype)


class Dropped(torch.autograd.Function):
    """Draws its own mask."""

    @staticmethod
    def forward(ctx, x):
        ctx.mask = torch.rand_like(x) > 0.2
        return x * ctx.mask

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.mask


class Rectified(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (ctx.saved_tensors[0] > 0)


class Gathered(torch.autograd.Function):
    """Gathers rows by index; its input sizes depend on each other."""

    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(ids)
        ctx.shape = table.shape
        return table[ids]

    @staticmethod
    def backward(ctx, gradient):
        (ids,) = ctx.saved_tensors
        full = gradient.new_zeros(ctx.shape)
        return full.index_add(0, ids.reshape(-1), gradient.reshape(-1, ctx.shape[-1])), None


class WritesForward(torch.autograd.Function):
    """A forward that works in place and declares it."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(_ctx, gradient):
        return 3 * gradient


class StopsOneInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target):
        ctx.save_for_backward(target)
        return x * target

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0], None


class HalvesOf(torch.autograd.Function):
    """Needs an even width: a gated unit over the two halves of its input."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        a, b = x.chunk(2, -1)
        return a * b

    @staticmethod
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors[0].chunk(2, -1)
        return torch.cat([gradient * b, gradient * a], -1)


class Policy(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.vision, self.head, self.scale = nn.Linear(48, 64), nn.LazyLinear(7), nn.Parameter(torch.ones(64))
        self.activation = activation
        self.head(activation(self, torch.zeros(1, 64)))

    def forward(self, x, action):
        return {"loss": (self.head(self.activation(self, self.vision(x))) - action).square().mean()}


def _program(activation, **more):
    batch = {"x": torch.randn(16, 10, 48), "action": torch.randn(16, 10, 7)}
    return {"model": Policy(activation), "batch": batch, **more}


def right_derivative():
    return _program(lambda _, x: Swish.apply(x))


def right_derivative_with_a_kink_where_the_data_stand():
    return _program(lambda _, x: Rectified.apply(-x.relu()))


def straight_through_estimator():
    return _program(lambda _, x: StraightThrough.apply(x))


def quantiser_with_a_learned_step():
    return _program(lambda policy, x: LearnedStep.apply(x, policy.scale[:1]))


def clamp_that_lets_gradients_through():
    return _program(lambda _, x: PassThroughClamp.apply(x))


def gradient_reversal():
    return _program(lambda _, x: Reversal.apply(x, 0.3))


def spiking_neuron():
    return _program(lambda _, x: Spike.apply(x))


def norm_in_single_precision():
    return _program(lambda policy, x: SingleNorm.apply(x, policy.scale))


def dropout_of_its_own():
    return _program(lambda _, x: Dropped.apply(x))


def rows_by_index():
    return _program(
        lambda policy, x: x + Gathered.apply(policy.scale[:, None].expand(64, 64), torch.arange(10) % 7)[:1]
    )


def forward_that_writes_to_its_input():
    return _program(lambda _, x: WritesForward.apply(x * 1))


def target_without_a_gradient():
    return _program(lambda policy, x: StopsOneInput.apply(x, policy.scale))


def halves_of_an_even_width():
    return _program(lambda _, x: HalvesOf.apply(x))


def reentrant_checkpointing():
    return _program(lambda policy, x: checkpoint(torch.tanh, x + policy.scale, use_reentrant=True))


def no_custom_function():
    return _program(lambda _, x: x.tanh())
