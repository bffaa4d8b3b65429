"""Training and serving paths that prepare a frame differently."""

import torch
from torch import nn

import debugkit

_FRAME = {"image": torch.randint(0, 256, (20, 16, 3), dtype=torch.uint8), "instruction": "go to the red block"}
_WORDS = ["go", "to", "the", "red", "block", "please"]


def _ids(text):
    return torch.tensor([_WORDS.index(word) for word in text.split()])


def _training(frame):
    image = frame["image"].permute(2, 0, 1).float() / 255
    return {"pixel_values": image[:, 2:18], "input_ids": _ids(frame["instruction"]), "action": torch.zeros(3)}


def _declared(serving, **expect):
    return {
        "model": nn.Linear(2, 2),
        "declare": debugkit.Declare(training_path=_training, serving_path=serving, raw_frame=_FRAME),
        "expect": expect,
    }


def serving_crops_elsewhere():
    def serving(frame):  # DK407
        prepared = _training(frame)
        prepared["pixel_values"] = frame["image"].permute(2, 0, 1).float()[:, :16] / 255
        return prepared

    return _declared(serving, severity="error", message="`pixel_values` differently: values differ")


def serving_words_the_prompt_differently():
    def serving(frame):  # DK407
        return _training(frame) | {"input_ids": _ids("please " + frame["instruction"])}

    return _declared(serving, message="`input_ids` differently: shape (5,) in training, (6,) in serving")


def serving_forgets_an_entry_and_the_scaling():
    def serving(frame):  # DK407
        return {"pixel_values": frame["image"].permute(2, 0, 1)[None, :, 2:18]}

    return _declared(serving, count=2)
