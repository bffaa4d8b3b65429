"""Images that are normalised twice, not at all, or padded before scaling."""

import torch
from torch import nn

_MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
_STD = torch.tensor([0.229, 0.224, 0.225])[:, None, None]


def _picture():
    """Similar to a photograph: every grey level, mean 0.45."""
    return (torch.randint(0, 256, (2, 3, 24, 24)).float() / 255) ** 1.2


def _program(image, message, expect=()):
    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.vision = nn.Conv2d(3, 8, 4, stride=4)

        def forward(self, image):
            return {"loss": self.vision(image).square().mean()}

    return {
        "model": Tower(),
        "batch": {"image": image},
        "expect": {"module": "vision", "severity": "warning", "message": message},
    }


def scaled_to_minus_one_twice():
    return _program(2 * (2 * _picture() - 1) - 1, "twice")


def imagenet_constants_twice():
    once = (_picture() - _MEAN) / _STD
    return _program((once - _MEAN) / _STD, "normalised twice")


def padded_with_minus_one_before_scaling():
    image = _picture()
    image[:, :, :4], image[:, :, -4:] = -1, -1
    return _program(2 * image - 1, "bars")


def statistics_of_integers_on_floats():
    return _program((_picture() - 124) / 58, "nearly constant")


def divided_by_255_twice():
    return _program(_picture() / 255, "nearly constant")


def resized_but_never_normalised():
    return _program(255 * _picture() + 0.25, "never normalised")
