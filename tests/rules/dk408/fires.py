"""Two sources in which one number of the action is mirrored."""

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

OPEN, CLOSED = -1.0, 1.0


class Recorded(Dataset):
    """Frames of one robot; `convert` turns its actions (N, 3) into the ones that are trained on."""

    def __init__(self, size, convert=lambda action: action, seed=0, chunk=0, **entries):
        random = torch.Generator().manual_seed(seed)
        self.state = torch.rand(size, 3, generator=random)
        self.state[:, 2] = torch.where(torch.rand(size, generator=random) < 0.9, OPEN, CLOSED)
        action = 0.1 * torch.randn(size, 3, generator=random)
        action[:, 2] = torch.where(torch.rand(size, generator=random) < 0.85, OPEN, CLOSED)
        self.action, self.chunk, self.entries = convert(action), chunk, entries

    def __len__(self):
        return len(self.state)

    def __getitem__(self, index):  # DK408
        action = self.action[index]
        if self.chunk:
            action = torch.cat([action[None], torch.zeros(self.chunk - 1, 3)])
        return {"state": self.state[index], "action": action, **self.entries}


def _turned(dimension):
    """Changes the sign of one number of an action."""

    def convert(action):
        action[:, dimension] *= -1
        return action

    return convert


def _program(data, **expect):
    def loss_fn(model, batch):
        action = batch["action"] if batch["action"].ndim == 2 else batch["action"][:, 0]
        return (model(batch["state"]) - action).abs().mean()

    expect = {"severity": "warning", "count": 1, **expect}
    return {"model": nn.Linear(3, 3), "dataloader": DataLoader(data, 4), "loss_fn": loss_fn, "expect": expect}


def gripper_of_the_second_part():
    data = ConcatDataset([Recorded(100), Recorded(100, _turned(2), seed=1)])
    return _program(data, message="`action[2]` of source `datasets[1]` is mirrored against that of `datasets[0]`")


def from_zero_to_one():
    def on_that_scale(action):
        action[:, 2] = (action[:, 2] + 1) / 2
        return action

    def turned_on_that_scale(action):
        action[:, 2] = (1 - action[:, 2]) / 2
        return action

    data = ConcatDataset([Recorded(100, on_that_scale), Recorded(60, turned_on_that_scale, seed=1)])
    return _program(data, message="it is 1 in ")


def half_of_the_frames_in_chunks():
    mixed = ConcatDataset([Recorded(120, chunk=4), Recorded(120, _turned(2), seed=1, chunk=4)])
    return _program(Subset(mixed, range(0, 240, 2)), message="`datasets[1]`")


def one_of_three_robots_by_name():
    robots = [
        Recorded(60, seed=0, robot="bench"),
        Recorded(60, _turned(2), seed=1, robot="cell"),
        Recorded(60, seed=2, robot="desk"),
    ]
    return _program(ConcatDataset(robots), message="`action[2]` of source `cell` is mirrored")


def parts_whose_frames_name_their_files():
    class Named(Recorded):
        def __getitem__(self, index):  # DK408
            return {**super().__getitem__(index), "source": f"episode_{index}.hdf5"}

    return _program(ConcatDataset([Named(60), Named(60, _turned(2), seed=1)]), message="`datasets[1]`")


class OneTable(Dataset):
    """The frames of two robots in turn, as one data set."""

    def __init__(self, one, other):
        self.robots = one, other

    def __len__(self):
        return len(self.robots[0]) * 2

    def __getitem__(self, index):  # DK408
        frame = self.robots[index // 50 % 2][index // 100 * 50 + index % 50]
        return {"observation": {"state": frame["state"]}, "action": frame["action"], "dataset_index": index // 50 % 2}


def one_data_set_with_an_entry_for_the_source():
    data = OneTable(Recorded(200), Recorded(200, _turned(2), seed=1))
    program = _program(data, message="source `dataset_index=1`")
    program["loss_fn"] = lambda model, batch: (model(batch["observation"]["state"]) - batch["action"]).abs().mean()
    return program


class Driven(Dataset):
    """Episodes in which each action moves the state; `sign` is that of the recorded y."""

    def __init__(self, sign, goals=False, seed=0):
        noise = torch.randn(168, 3, generator=torch.Generator().manual_seed(seed))
        action = 0.1 * noise.unfold(0, 9, 1).mean(-1)  # slow, as an arm
        self.state = torch.cat([torch.zeros(1, 3), action.cumsum(0)[:-1]])
        self.action = (self.state + action if goals else action) * torch.tensor([1.0, sign, 1.0])

    def __len__(self):
        return len(self.state)

    def __getitem__(self, index):  # DK408
        return {
            "observation.state": self.state[index].numpy(),
            "action": self.action[index].numpy(),
            "episode_id": f"episode {index // 40}",
        }


def _driven(data, message):
    program = _program(data, message=message)
    program["loss_fn"] = lambda model, batch: (model(batch["observation.state"]) - batch["action"]).abs().mean()
    return program


def movements_along_an_axis_that_points_the_other_way():
    data = ConcatDataset([Driven(1.0), Driven(-1.0, seed=1)])
    return _driven(data, "the state moves against the action in `datasets[1]` (correlation -1.00)")


def goals_along_an_axis_that_points_the_other_way():
    data = ConcatDataset([Driven(1.0, goals=True), Driven(-1.0, goals=True, seed=1)])
    return _driven(data, "`action[1]` of source `datasets[1]`")
