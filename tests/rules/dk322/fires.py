"""Rows that have the size of a patch and hold something else."""

import torch
from torch import nn
from torch.nn import functional as F

SIDE = 4


class Policy(nn.Module):
    """Rows of an image (B, C, H, W) through a transformer; `rows` is the function that cuts the image."""

    def __init__(self, rows, channels=3, class_token=False):
        super().__init__()
        self.rows = rows
        self.embed = nn.Linear(channels * SIDE * SIDE, 16)
        self.start = nn.Parameter(torch.randn(1, 1, 16)) if class_token else None
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 2)

    def forward(self, images):
        tokens = self.embed(self.rows(images))
        if self.start is not None:
            tokens = torch.cat([self.start.expand(len(images), -1, -1), tokens], dim=1)
        return self.head(self.encoder(tokens).mean(1))


def _program(rows, shape=(4, 3, 16, 16), model=None, **expect):
    batch = {"images": torch.randn(shape), "action": torch.randn(shape[0], 2)}

    def loss_fn(model, batch):
        return F.mse_loss(model(batch["images"]), batch["action"])

    expect = {"module": "embed", "severity": "warning", **expect}
    return {"model": model or Policy(rows, shape[1]), "batch": batch, "loss_fn": loss_fn, "expect": expect}


def windows_in_front_of_the_channels():
    def rows(images):
        windows = images.unfold(2, SIDE, SIDE).unfold(3, SIDE, SIDE)
        return windows.reshape(len(images), -1, 3 * SIDE * SIDE)  # DK322

    return _program(rows, message="3 of the 16 squares")


def image_reshaped():
    def rows(images):
        return images.view(len(images), -1, 3 * SIDE * SIDE)  # DK322

    return _program(rows, (4, 3, 16, 16), message="8 of the 16 squares")


def image_reshaped_into_strips_of_one_channel():
    def rows(images):
        return images.reshape(len(images), -1, 3 * SIDE * SIDE)  # DK322

    return _program(rows, (4, 3, 12, 24))


def unfolded_without_exchanging_the_axes():
    def rows(images):
        return F.unfold(images, SIDE, stride=SIDE).reshape(len(images), -1, images.shape[1] * SIDE * SIDE)  # DK322

    return _program(rows, (4, 1, 16, 24), message="16 of the 24 squares")


def every_row_a_thumbnail():
    def rows(images):
        size, channels, height, width = images.shape
        split = images.reshape(size, channels, SIDE, height // SIDE, SIDE, width // SIDE)
        return split.permute(0, 3, 5, 1, 2, 4).reshape(size, -1, channels * SIDE * SIDE)  # DK322

    return _program(rows, (2, 3, 16, 24))


def behind_a_linear_layer_without_a_module():
    class Functional(Policy):
        def forward(self, images):
            rows = images.unfold(2, SIDE, SIDE).unfold(3, SIDE, SIDE).reshape(len(images), -1, 3 * SIDE * SIDE)  # DK322
            return self.head(self.encoder(F.linear(rows, self.embed.weight)).mean(1))

    return _program(None, model=Functional(None), module="encoder")


def one_sample():
    def rows(images):
        return images.reshape(len(images), -1, 3 * SIDE * SIDE)  # DK322

    return _program(rows, (1, 3, 16, 16), model=Policy(rows, class_token=True))
