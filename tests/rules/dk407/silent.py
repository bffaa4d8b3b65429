"""Paths that prepare a frame in the same way and differ only in how they package it."""

import torch
from torch import nn

import debugkit

_FRAME = {"image": torch.randint(0, 256, (16, 16, 3), dtype=torch.uint8), "state": [0.1, 0.2]}


def _prepare(frame):
    image = frame["image"].permute(2, 0, 1).float() / 255
    return {"pixel_values": image, "state": torch.tensor(frame["state"])}


def _declared(training, serving, **expect):
    return {
        "model": nn.Linear(2, 2),
        "declare": debugkit.Declare(training_path=training, serving_path=serving, raw_frame=_FRAME),
        "expect": expect,
    }


def targets_and_a_batch_of_one():
    def training(frame):
        return _prepare(frame) | {"action": torch.zeros(3), "action_is_pad": torch.zeros(1, dtype=torch.bool)}

    def serving(frame):
        return {key: tensor[None] for key, tensor in _prepare(frame).items()}

    return _declared(training, serving)


def arrays_in_double_precision():
    def serving(frame):
        return {key: tensor.double().numpy() for key, tensor in _prepare(frame).items()}

    return _declared(_prepare, serving)


def images_augmented_in_training():
    def training(frame):
        prepared = _prepare(frame)
        prepared["pixel_values"] = prepared["pixel_values"] * torch.empty(1).uniform_(0.8, 1.2)
        return prepared

    return _declared(training, _prepare)


def everything_augmented():
    return _declared(lambda frame: torch.rand(3), lambda frame: torch.rand(3), not_examined="is random")


def path_that_raises():
    return _declared(_prepare, lambda frame: frame["depth"], not_examined="The serving path raised KeyError")


def nothing_declared():
    return {"model": nn.Linear(2, 2), "expect": {"not_examined": "No paths were declared"}}
