"""Steps that use every parameter, or that need not."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from two_ranks import alone, leave


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.state, self.head = nn.Linear(5, 4), nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, state, image=None):
        feature = self.state(state)
        if image is not None:
            feature = feature + self.vision(image)
        return self.head(feature)


class BlankFrame(Policy):
    """Without an image the tower runs on a blank frame, and its result is masked out."""

    def forward(self, state, image=None):
        present = image is not None
        image = image if present else torch.zeros(len(state), 5)
        return super().forward(state, image * float(present)) if present else self._without(state, image)

    def _without(self, state, image):
        return self.head(self.state(state) + 0.0 * self.vision(image))


def _loss(model, batch):
    return model(**batch).square().mean()


def _check(model, **options):
    alone()
    model = DistributedDataParallel(model, **options)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    return {"model": model, "batch": {"state": torch.randn(4, 3)}, "loss_fn": _loss, "optimizer": optimizer}


def _train(model, steps, **options):
    alone()
    model = DistributedDataParallel(model, **options)

    def loop(model, optimizer):
        try:
            for _ in range(3):
                steps(model, optimizer)
        finally:
            leave()

    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loop": loop}


def tower_on_a_blank_frame():
    return _check(BlankFrame())


def ddp_looks_for_unused_parameters():
    return _check(Policy(), find_unused_parameters=True)


def static_graph():
    return _check(Policy(), static_graph=True)


def frozen_tower():
    model = Policy()
    model.vision.requires_grad_(False)
    return _check(model)


def accumulation_of_batches_with_and_without_images():
    """Only the last micro-batch is averaged, and it has an image."""

    def step(model, optimizer):
        optimizer.zero_grad()
        with model.no_sync():
            model(torch.randn(4, 3)).square().mean().backward()
        model(torch.randn(4, 3), torch.randn(4, 5)).square().mean().backward()
        optimizer.step()

    return _train(Policy(), step)


def evaluation_without_an_image():
    def step(model, optimizer):
        optimizer.zero_grad()
        model(torch.randn(4, 3), torch.randn(4, 5)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            model(torch.randn(4, 3))

    return _train(Policy(), step)


def nothing_wraps_the_model():
    program = _check(Policy())
    leave()
    model = Policy()
    expect = {"not_examined": "wraps this model"}
    return {**program, "model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "expect": expect}
