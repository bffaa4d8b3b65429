"""Lesson 18: a backward that writes into its incoming buffer passes torch.autograd.gradcheck."""

# --8<-- [start:blind]
import torch

import debugkit


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient.mul_(2 * x)  # the right derivative, in memory that is not ours


x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
print("torch.autograd.gradcheck:", torch.autograd.gradcheck(Square.apply, (x,)))

hidden = 1.0 * x  # an earlier layer's output
weight = torch.ones(3, dtype=torch.float64)
((hidden + Square.apply(hidden)) * weight).sum().backward()  # a residual connection
print("gradient of x + x²:", x.grad.tolist(), " and it should be", (1 + 2 * x).tolist(), "\n")

print(debugkit.gradcheck(Square, x))
# --8<-- [end:blind]
assert x.grad.tolist() != [3.0, 5.0, 7.0]
assert not debugkit.gradcheck(Square, x)
