"""Policies that read the target or the future at inference."""

import torch
from torch import nn

import debugkit


class VaePolicy(nn.Module):
    """As in ACT: if the batch has an action, an encoder of the action gives the latent."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(3, 4), nn.Linear(4 + 5, 3)

    def forward(self, state, action=None):
        latent = torch.zeros(len(state), 4) if action is None else self.encoder(action)
        prediction = self.decoder(torch.cat([latent, state], dim=-1))
        return {"action": prediction, "loss": None if action is None else (prediction - action).square().mean()}

    def predict(self, batch):
        return self(batch["state"], batch.get("action"))["action"]


def latent_of_the_target_at_inference():
    return {
        "model": VaePolicy(),
        "batch": {"state": torch.randn(4, 5), "action": torch.randn(4, 3)},
        "expect": {"severity": "error", "message": "reads the target action"},
    }


def state_at_the_end_of_the_window():
    class Window(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(5, 3)

        def forward(self, state, action):
            return {"loss": (self.head(state[:, -1]) - action).square().mean()}

    return {
        "model": Window(),
        "batch": {"state": torch.randn(4, 3, 5), "action": torch.randn(4, 3)},
        "declare": debugkit.Declare(
            future=("state[1:]",), inference=lambda model, batch: model.head(batch["state"][:, -1])
        ),
        "expect": {"message": "reads the future: with other values in `state[1:]`"},
    }


def next_image_found_by_its_name():
    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(10, 3)

        def select_action(self, batch):
            return {"action": self.head(torch.cat([batch["state"], batch["next.state"]], dim=-1))}

    batch = {"state": torch.randn(4, 5), "next.state": torch.randn(4, 5), "action": torch.randn(4, 3)}
    return {
        "model": Flow(),
        "batch": batch,
        "loss_fn": lambda model, batch: (model.select_action(batch)["action"] - batch["action"]).square().mean(),
        "expect": {"message": "in `next.state`"},
    }
