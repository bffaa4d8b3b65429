"""Action tokens that decode to other actions or other tokens."""

import torch
from torch import nn

import debugkit


class Bins(nn.Module):
    """Uniform bins over [low, high]; subclasses get decoding wrong."""

    def __init__(self, count=64, low=-1.0, high=1.0):
        super().__init__()
        self.register_buffer("edges", torch.linspace(low, high, count + 1))
        self.count = count

    def encode_actions(self, action):
        return (torch.bucketize(action.contiguous(), self.edges, right=True) - 1).clamp(0, self.count - 1)


def _program(bins, batch=None, **expect):
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.bins = nn.Linear(4, 3), bins

        def forward(self, state, action):
            return {"loss": (self.head(state) - action).abs().mean()}

    batch = batch or {"state": torch.randn(6, 4), "action": torch.rand(6, 3) * 2 - 1}
    return {"model": Policy(), "batch": batch, "expect": {"module": "bins", "severity": "error"} | expect}


def left_edges_instead_of_centres():
    class LeftEdges(Bins):
        def decode_actions(self, tokens):  # DK405
            return self.edges[tokens]

    return _program(LeftEdges(), message="on average -0.5 bins away from the centre")


def range_of_the_environment_and_one_wrong_dimension():
    class OneAxis(Bins):
        def decode_actions(self, tokens):  # DK405
            centres = (self.edges[1:] + self.edges[:-1]) / 2
            shift = torch.tensor([0, 0, 1])
            return centres[(tokens + shift).clamp(max=self.count - 1)]

    batch = {"state": torch.randn(6, 4), "action": torch.rand(6, 4, 3) * 0.2 - 0.1}
    program = _program(OneAxis(64, -0.1, 0.1), batch, message="in dimension 2")
    return program | {
        "loss_fn": lambda model, batch: (model.head(batch["state"])[:, None] - batch["action"]).abs().mean()
    }


def ids_are_clamped_into_the_vocabulary():
    def encode(action):
        return (32 * (action + 1)).floor().long().clamp(0, 63)

    def decode(tokens):  # DK405
        return (tokens.clamp(max=50) + 0.5) / 32 - 1

    return {
        "model": nn.Linear(4, 3),
        "declare": debugkit.Declare(action_tokens=(encode, decode)),
        "expect": {"message": "decode to a value outside the bin"},
    }
