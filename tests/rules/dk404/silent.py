"""Policies that read the target only in training, or not at all."""

import torch
from torch import nn

import debugkit


class VaePolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(3, 4), nn.Linear(4 + 5, 3)

    def forward(self, state, action):
        latent = self.encoder(action) if self.training else torch.zeros(len(state), 4)
        prediction = self.decoder(torch.cat([latent, state], dim=-1))
        return {"action": prediction, "loss": (prediction - action).square().mean()}

    def predict(self, batch):
        return self(batch["state"], batch["action"])["action"]


def _batch():
    return {"state": torch.randn(4, 5), "action": torch.randn(4, 3)}


def latent_of_the_target_in_training_only():
    return {"model": VaePolicy(), "batch": _batch()}


def flow_matching_draws_noise():
    from labs.vla.dataset import collate, demonstrations
    from labs.vla.policy import Policy, PolicyConfig

    model = Policy(PolicyConfig(head="flow_matching"))
    return {"model": model, "batch": collate(demonstrations(4, 0), range(4))}


def history_of_the_past():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.GRU(5, 6, batch_first=True), nn.Linear(6, 3)

        def predict(self, batch):
            return self.head(self.rnn(batch["state"][:, :3])[0][:, -1])

    batch = {"state": torch.randn(4, 5, 5), "action": torch.randn(4, 3)}
    return {
        "model": Recurrent(),
        "batch": batch,
        "loss_fn": lambda model, batch: (model.predict(batch) - batch["action"]).square().mean(),
        "declare": debugkit.Declare(future=("state[3:]",)),
    }


def no_inference():
    return {
        "model": nn.Linear(5, 3),
        "batch": _batch(),
        "loss_fn": lambda model, batch: (model(batch["state"]) - batch["action"]).square().mean(),
        "expect": {"not_examined": "Declare(inference="},
    }


def inference_that_raises():
    class Broken(VaePolicy):
        def predict(self, batch):
            raise RuntimeError("no camera")

    return {"model": Broken(), "batch": _batch(), "expect": {"not_examined": "no camera"}}


def future_that_is_not_there():
    return {
        "model": VaePolicy(),
        "batch": _batch(),
        "declare": debugkit.Declare(future=("next_image",)),
        "expect": {"not_examined": "'next_image' is not in the batch"},
    }
