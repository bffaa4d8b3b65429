"""Images normalised once, in any of the usual ways."""

import torch
from torch import nn


def _picture():
    return (torch.randint(0, 256, (2, 3, 24, 24)).float() / 255) ** 1.2


def _program(image, channels=3):
    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.vision = nn.Conv2d(channels, 8, 4, stride=4)

        def forward(self, image):
            return {"loss": self.vision(image).square().mean()}

    return {"model": Tower(), "batch": {"image": image}}


def _normalised(image, mean, std):
    mean, std = (torch.tensor(values)[:, None, None] for values in (mean, std))
    return (image - mean) / std


def unit_range():
    return _program(_picture())


def symmetric_range():
    return _program(2 * _picture() - 1)


def imagenet_constants():
    return _program(_normalised(_picture(), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))


def clip_constants():
    return _program(_normalised(_picture(), [0.481, 0.458, 0.408], [0.269, 0.261, 0.276]))


def each_image_standardised_with_a_few_bright_spots():
    image = 0.05 * _picture()
    image[:, :, 3, 3:5] = 1
    return _program((image - image.mean()) / image.std())


def white_pages_with_the_mean_of_the_data():
    image = 1 - (torch.rand(2, 3, 24, 24) < 0.05).float() * torch.rand(2, 3, 24, 24)
    return _program((image - 0.97) / 0.12)


def random_numbers_of_a_smoke_test():
    return _program(torch.randn(4, 3, 24, 24))


def grey_padding_after_normalising():
    image = 2 * _picture() - 1
    image[:, :, :4] = 0
    return _program(image)


def black_padding_beside_a_bright_image():
    image = 0.5 + 0.5 * _picture()
    image[:, :, :4] = 0
    return _program(2 * image - 1)


def blank_camera():
    return _program(torch.full((2, 3, 24, 24), -1.0))


def depth_in_millimetres():
    return _program(torch.rand(2, 1, 24, 24) * 4000, channels=1)


def the_labs_policy():
    from labs.vla.dataset import collate, demonstrations
    from labs.vla.policy import Policy

    return {"model": Policy(), "batch": collate(demonstrations(8, 0), range(8))}


def noise_whose_lowest_value_is_far_from_the_next():
    image = torch.randn(2, 3, 8, 8)
    image[0, 0, 0, 0] = image.min() - 1.5
    return _program(image)
