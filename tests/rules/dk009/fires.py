"""Results that a line drops. The line that a finding must name ends in `# DK009`."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, state):
        return self.head(torch.tanh(self.body(state)))


def _batch():
    return {"state": torch.randn(8, 6), "action": torch.rand(8, 3)}


def _loss(model, batch):
    return nn.functional.mse_loss(model(batch["state"]), batch["action"])


def actions_are_not_clipped():
    class Clipped(Policy):
        def forward(self, state):
            action = super().forward(state)
            action.clamp(-1, 1)  # DK009
            return action

    return {
        "model": Clipped(),
        "batch": _batch(),
        "loss_fn": _loss,
        "expect": {"severity": "warning", "fix": "`clamp_`", "module": ""},
    }


def moved_without_an_assignment():
    device = torch.device("cpu")

    def loss_fn(model, batch):
        state, action = batch["state"], batch["action"]
        state.to(device)  # DK009
        return nn.functional.mse_loss(model(state), action)

    return {"model": Policy(), "batch": _batch(), "loss_fn": loss_fn, "expect": {"message": "`to`", "fix": "module"}}


def function_of_torch():
    def loss_fn(model, batch):
        loss = _loss(model, batch)
        torch.clamp(loss, max=10.0)  # DK009
        return loss

    return {"model": Policy(), "batch": _batch(), "loss_fn": loss_fn, "expect": {"message": "`clamp`"}}


def average_that_never_follows():
    """Between the steps of a loop, outside of any module."""
    model, average = Policy(), Policy().requires_grad_(False)

    def loop(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            _loss(model, _batch()).backward()
            optimizer.step()
            with torch.no_grad():
                for kept, now in zip(average.parameters(), model.parameters(), strict=True):
                    kept.lerp(now, 0.1)  # DK009

    return {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters()),
        "loop": loop,
        "expect": {"fix": "`lerp_`", "evidence": "calls"},
    }
