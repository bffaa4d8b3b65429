import torch
from torch import nn

import debugkit


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 3)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        action = self.net(state)
        action.clamp(-1, 1)
        return action


def loss_fn(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return (model(batch["state"]) - batch["action"]).square().mean()


torch.manual_seed(0)
batch = {"state": torch.randn(8, 6), "action": torch.rand(8, 3)}
print(debugkit.check(Policy(), batch, loss_fn, select="DK009"))
