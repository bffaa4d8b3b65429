"""Lesson 18: what gradcheck's three numbers mean, and what it costs, measured."""

# --8<-- [start:cost]
import torch
from torch.nn.functional import silu

calls = 0


def gated(gate, up):
    global calls
    calls += 1
    return silu(gate) * up


for numbers in (6, 60, 600):
    calls = 0
    gate, up = (torch.randn(numbers, dtype=torch.float64, requires_grad=True) for _ in range(2))
    torch.autograd.gradcheck(gated, (gate, up))
    print(f"{2 * numbers:5d} input numbers: {calls:5d} forwards")

print()
gate = torch.linspace(-4, 4, 101, dtype=torch.float64)
sigmoid = torch.sigmoid(gate)
slope = sigmoid * (1 + gate * (1 - sigmoid))
for dtype in (torch.float64, torch.float32):
    for eps in (1e-2, 1e-3, 1e-6, 1e-9):
        x = gate.to(dtype)
        difference = (silu(x + eps) - silu(x - eps)) / (2 * eps)
        print(f"{dtype}, eps {eps:g}: off by up to {float((difference - slope).abs().max()):.0e}")
# --8<-- [end:cost]
assert calls > 4 * 600
