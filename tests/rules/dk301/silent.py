"""Whole numbers that are not pixels, and pixels that are normalised somewhere."""

import torch
from torch import nn


def _program(image, channels=3, before=None):
    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.before = before or nn.Identity()
            self.convolution = nn.Conv2d(channels, 8, 4, stride=4)
            self.second = nn.Conv2d(8, 3, 1)
            self.out = nn.Conv2d(3, 3, 1)

        def forward(self, image):
            x = self.convolution(self.before(image))
            return {"loss": self.out(self.second(x)).square().mean()}

    return {"model": Tower(), "batch": {"image": image}}


def _camera():
    return torch.randint(0, 256, (2, 3, 16, 16)).float()


def scaled_in_the_batch():
    return _program(_camera() / 255)


def scaled_inside_the_policy():
    class Scale(nn.Module):
        def forward(self, image):
            return image / 127.5 - 1

    return _program(_camera(), before=Scale())


def batch_norm_in_front():
    return _program(_camera(), before=nn.BatchNorm2d(3)) | {"expect": {"not_examined": "No image reached"}}


def frozen_tower():
    program = _program(_camera() / 255)
    program["model"].convolution.requires_grad_(False)
    return program


def masks_and_one_hot_maps():
    return _program(torch.randint(0, 3, (2, 3, 16, 16)).float())


def label_map_of_one_channel():
    return _program(torch.randint(0, 19, (2, 1, 16, 16)).float(), channels=1)


def black_image():
    return _program(torch.zeros(2, 3, 16, 16))


def the_labs_policy():
    from labs.vla.dataset import collate, demonstrations
    from labs.vla.policy import Policy

    return {"model": Policy(), "batch": collate(demonstrations(8, 0), range(8))}


def no_images():
    return {
        "model": nn.Linear(4, 2),
        "batch": torch.randint(0, 255, (3, 4)).float(),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": {"not_examined": "no convolution over image channels"},
    }
