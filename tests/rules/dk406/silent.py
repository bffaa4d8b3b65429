"""Policies without memory, or with memory that a reset clears."""

from collections import deque

import torch
from torch import nn

import debugkit


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.rnn = nn.Linear(6, 6), nn.GRUCell(5, 6)
        self.queue, self.hidden = deque(maxlen=3), None

    def forward(self, state, action):
        return {"loss": (self.head(self.rnn(state)) - action).square().mean()}

    def reset(self):
        self.queue.clear()
        self.hidden = None

    def select_action(self, batch):
        self.hidden = self.rnn(batch["state"], self.hidden)
        if not self.queue:
            self.queue.extend(self.head(self.hidden).unflatten(-1, (3, 2)).unbind(1))
        return self.queue.popleft()


def _batch():
    return {"state": torch.randn(4, 5), "action": torch.randn(4, 6)}


def queue_and_recurrent_state_are_cleared():
    return {"model": Policy(), "batch": _batch()}


def memory_outside_the_model_with_a_declared_reset():
    queue = deque()

    def inference(model, batch):
        if not queue:
            queue.extend(model(batch["state"]).unflatten(-1, (3, 2)).unbind(1))
        return queue.popleft()

    return {
        "model": nn.Linear(5, 6),
        "batch": _batch(),
        "loss_fn": lambda model, batch: (model(batch["state"]) - batch["action"]).square().mean(),
        "declare": debugkit.Declare(inference=inference, reset=lambda _: queue.clear()),
    }


def no_memory_and_no_reset():
    from labs.vla.dataset import collate, demonstrations
    from labs.vla.policy import Policy as LabsPolicy
    from labs.vla.policy import PolicyConfig

    model = LabsPolicy(PolicyConfig(head="flow_matching"))
    return {"model": model, "batch": collate(demonstrations(4, 0), range(4))}


def noise_from_a_generator_of_its_own():
    class Sampler(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.generator = nn.Linear(5, 6), torch.Generator().manual_seed(7)

        def forward(self, state, action):
            return {"loss": (self.head(state) - action).square().mean()}

        def predict(self, batch):
            return self.head(batch["state"]) + torch.randn(1, 6, generator=self.generator)

    return {"model": Sampler(), "batch": _batch()}


def no_inference():
    return {
        "model": nn.Linear(5, 6),
        "batch": _batch(),
        "loss_fn": lambda model, batch: (model(batch["state"]) - batch["action"]).square().mean(),
        "expect": {"not_examined": "Declare(inference="},
    }
