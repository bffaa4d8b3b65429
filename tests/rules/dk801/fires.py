"""Steps in which some parameters of a DistributedDataParallel get no gradient."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from two_ranks import alone, leave


class Policy(nn.Module):
    """Runs the vision tower only if there is an image."""

    def __init__(self):
        super().__init__()
        self.vision = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4))
        self.state = nn.Linear(3, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, state, image=None):
        feature = self.state(state)
        if image is not None:
            feature = feature + self.vision(image)
        return self.head(feature)


def _loss(model, batch):
    return model(**batch).square().mean()


def batch_without_an_image():
    alone()
    model = DistributedDataParallel(Policy())
    return {
        "model": model,
        "batch": {"state": torch.randn(4, 3)},
        "loss_fn": _loss,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "expect": {"message": "4 in `module.vision`", "module": "module.vision", "severity": "error"},
    }


def only_the_second_step():
    """The rule fires before the third step, in which DDP would raise."""
    alone()
    model = DistributedDataParallel(Policy())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop(model, optimizer):
        try:
            for image in (torch.randn(4, 5), None):
                optimizer.zero_grad()
                model(torch.randn(4, 3), image).square().mean().backward()
                optimizer.step()
        finally:
            leave()

    expect = {"message": "vision", "module": "module.vision"}
    return {"model": model, "optimizer": optimizer, "loop": loop, "expect": expect}


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.grasp, self.value = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, state):
        return self.grasp(self.body(state)), self.value(self.body(state))


def head_without_a_loss():
    alone()
    model = DistributedDataParallel(TwoHeads())

    def loss(model, state):
        grasp, _ = model(state)
        return grasp.mean()

    expect = {"message": "value.weight` and `module.value.bias", "module": "module.value"}
    return {"model": model, "batch": torch.randn(2, 3), "loss_fn": loss, "expect": expect}
