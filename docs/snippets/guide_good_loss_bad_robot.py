"""The measurements of the guide "The loss is good, the robot is not": a wrong sign, and another crop on the robot."""

import torch
from torch import nn

import debugkit


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(7, 2)

    def forward(self, image, state):
        return self.head(torch.cat([0 * image.flatten(1)[:, :3], state], 1))


mean, std = torch.tensor([0.1, -0.2]), torch.tensor([0.5, 2.0])


def normalise(action):
    return (action - mean) / std


def unnormalise(action):
    return action * std - mean


def prepare_for_training(frame):
    return {"image": frame["image"][:, 2:6, 2:6] / 255, "state": frame["state"]}


def prepare_on_the_robot(frame):
    return {"image": frame["image"][:, :4, :4] / 255, "state": frame["state"]}


def loss_fn(model, batch):
    return (model(batch["image"], batch["state"]) - normalise(batch["action"])).pow(2).mean()


torch.manual_seed(0)
model = Policy()
frame = {"image": torch.rand(3, 8, 8) * 255, "state": torch.randn(4)}
batch = {"image": torch.rand(8, 3, 4, 4), "state": torch.randn(8, 4), "action": torch.randn(8, 2)}

# --8<-- [start:paths]
declare = debugkit.Declare(
    normaliser=(normalise, unnormalise),
    training_path=prepare_for_training,
    serving_path=prepare_on_the_robot,
    raw_frame=frame,
)
print(debugkit.check(model, batch, loss_fn, select=["DK401", "DK405", "DK407"], declare=declare))
# --8<-- [end:paths]
# --8<-- [start:inputs]
print(debugkit.check(model, batch, loss_fn, select=["DK306", "DK404"]))
# --8<-- [end:inputs]
report = debugkit.check(model, batch, loss_fn, select=["DK401", "DK407"], declare=declare)
assert {"DK401", "DK407"} <= set(report.by_code)
