import math

import torch
from torch import nn

import debugkit


class Attention(nn.Module):
    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        weights = scores.softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


def loss_fn(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return (model(batch["tokens"]).mean(1) - batch["action"]).square().mean()


torch.manual_seed(0)
batch = {"tokens": torch.randn(8, 6, 16), "action": torch.randn(8, 16)}
print(debugkit.check(Attention(), batch, loss_fn, select="DK327"))
