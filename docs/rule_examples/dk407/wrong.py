import torch
from torch import nn

import debugkit

torch.manual_seed(0)


def training(frame):
    image = frame["image"].permute(2, 0, 1).float() / 255
    return {"pixel_values": image[:, 2:18]}


def serving(frame):
    image = frame["image"].permute(2, 0, 1).float() / 255
    return {"pixel_values": image[:, :16]}


model = nn.Linear(2, 2)
frame = {"image": torch.randint(0, 256, (20, 16, 3), dtype=torch.uint8)}
declare = debugkit.Declare(
    training_path=training, serving_path=serving, raw_frame=frame
)
report = debugkit.check(model, declare=declare, select="DK407")
print(report)
