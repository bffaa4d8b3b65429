"""An ordinary training script, which knows nothing of debugkit; `debugkit run train.py` watches it."""

import sys

import torch
from torch import nn

steps = int(sys.argv[sys.argv.index("--steps") + 1]) if "--steps" in sys.argv else 10
policy = nn.Linear(8, 2)
optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
for _ in range(steps):
    state, action = torch.randn(16, 8), torch.randn(16, 2)
    loss = (policy(state) - action).pow(2).mean()
    loss.backward()
    optimizer.step()

assert torch.isfinite(loss)
