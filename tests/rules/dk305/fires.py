"""Models whose samples influence each other."""

import torch
from torch import nn


class AttendsOverBatch(nn.Module):
    """The softmax runs over dimension 0, the batch."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(6, 1)
        self.pool = Pool()
        self.head = nn.Linear(6, 3)

    def forward(self, frames):  # (B, T, D)
        return self.head(self.pool(frames, self.score(frames)))


class Pool(nn.Module):
    def forward(self, frames, score):
        return (frames * score.softmax(dim=0)).sum(1)


class ReadsQueueOfFirst(nn.Module):
    """Every sample gets the context of the first one, as with an action queue sliced on the batch axis."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, frames):
        return {"action": self.head(frames.mean(1)) + self.head(frames[:1, 0])}


def softmax_over_the_batch():
    return {
        "model": AttendsOverBatch(),
        "batch": torch.randn(4, 5, 6),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": {"module": "pool", "severity": "error", "message": "3 other samples"},
    }


def everyone_reads_sample_zero():
    return {
        "model": ReadsQueueOfFirst(),
        "batch": {"frames": torch.randn(2, 5, 6)},
        "loss_fn": lambda model, batch: model(batch["frames"])["action"].square().mean(),
        "expect": {"module": "", "severity": "error", "message": "1 other sample "},
    }


def similarity_of_each_with_each_is_only_information():
    class TwoTowers(nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.text = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, image, text):
            return self.image(image) @ self.text(text).T

    def loss_fn(model, batch):
        logits = model(batch["image"], batch["text"])
        return nn.functional.cross_entropy(logits, torch.arange(len(logits)))

    return {
        "model": TwoTowers(),
        "batch": {"image": torch.randn(4, 6), "text": torch.randn(4, 6)},
        "loss_fn": loss_fn,
        "expect": {"severity": "info"},
    }


def seen_in_inference_alone():
    class Policy(nn.Module):
        """In training mode it returns only the loss, as many policies do."""

        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 3)

        def act(self, state):
            return self.head(state - state.mean(0))

        def forward(self, state, action):
            return {"loss": (self.act(state) - action).square().mean()}

        def predict(self, batch):
            return self.act(batch["state"])

    batch = {"state": torch.randn(4, 6), "action": torch.randn(4, 3)}
    return {"model": Policy(), "batch": batch, "expect": {"severity": "error"}}
