"""Sources that differ, but not in what a number means."""

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, TensorDataset

SIZE = 100


class Frames(Dataset):
    def __init__(self, state, action, **entries):
        self.state, self.action, self.entries = state, action, entries

    def __len__(self):
        return len(self.action)

    def __getitem__(self, index):
        frame = {} if self.state is None else {"state": self.state[index]}
        more = {name: value[index] for name, value in self.entries.items()}
        return {**frame, "action": self.action[index], **more}


def _shares(size, closed, low=-1.0):
    """A gripper's numbers: 1 in this share of the frames."""
    return torch.where(torch.rand(size) < closed, 1.0, low)


def _frames(size=SIZE, state_closed=0.1, closed=0.15, **entries):
    state = torch.cat([torch.rand(size, 2), _shares(size, state_closed)[:, None]], dim=1)
    action = torch.cat([0.1 * torch.randn(size, 2), _shares(size, closed)[:, None]], dim=1)
    return Frames(state, action, **entries)


def _program(data, width=3, **expect):
    def loss_fn(model, batch):
        action = batch["action"] if batch["action"].ndim == 2 else batch["action"][:, 0]
        return (model(batch.get("state", action)) - action).abs().mean()

    if not isinstance(data, Dataset):
        data = ConcatDataset(data)
    return {"model": nn.Linear(width, 3), "dataloader": DataLoader(data, 4), "loss_fn": loss_fn, "expect": expect}


def two_robots_with_one_convention():
    return _program([_frames(), _frames(closed=0.3)])


def other_task_that_holds_an_object_most_of_the_time():
    return _program([_frames(), _frames(state_closed=0.9, closed=0.85)])


def state_and_action_both_mirrored():
    mirrored = _frames()
    mirrored.state[:, 2] *= -1
    mirrored.action[:, 2] *= -1
    return _program([_frames(), mirrored])


def other_task_to_the_other_side():
    right, left = _frames(), _frames()
    for frames, way in ((right, 0.1), (left, -0.1)):
        frames.action[:, 0] = way + 0.02 * torch.randn(SIZE)
    return _program([right, left])


def gripper_that_never_closes_in_one_source():
    return _program([_frames(), _frames(closed=0.0), _frames(closed=1.0)])


def gripper_that_is_closed_half_of_the_time():
    return _program([_frames(state_closed=0.5, closed=0.5), _frames(state_closed=0.4, closed=0.6)])


def grippers_on_two_scales():
    other = _frames()
    other.action[:, 2] = _shares(SIZE, 0.85, low=0.0)
    return _program([_frames(), other])


def too_few_frames():
    few = _frames(size=20, closed=0.85)
    return _program([_frames(), few], not_examined="from each of two sources")


def one_robot_in_all_parts_by_episode():
    parts = [_frames(size=40, state_closed=share, closed=share) for share in (0.1, 0.5, 0.9)]
    return _program(parts)


def chunks_whose_other_steps_are_padding():
    parts = []
    for fill in (-1.0, 1.0):
        frames = _frames()
        padding = torch.full((SIZE, 3, 3), fill)
        is_pad = torch.tensor([False, True, True, True]).expand(SIZE, 4)
        chunks = torch.cat([frames.action[:, None], padding], dim=1)
        parts.append(Frames(frames.state, chunks, action_is_pad=is_pad))
    return _program(parts)


def frames_that_are_all_padding():
    def padded(closed):
        frames = _frames(closed=closed)
        return Frames(frames.state, frames.action[:, None], action_is_pad=torch.ones(SIZE, 1, dtype=torch.bool))

    return _program([_frames(), padded(0.85)], not_examined="from each of two sources")


def actions_without_a_state():
    parts = [Frames(None, _frames(closed=share).action) for share in (0.15, 0.85)]
    return _program(parts, not_examined="with a state")


def states_of_another_width():
    parts = []
    for share in (0.15, 0.85):
        frames = _frames(closed=share)
        parts.append(Frames(torch.cat([torch.rand(SIZE, 5), frames.state], dim=1), frames.action))
    return _program(parts, width=8)


class Arm(Dataset):
    """Episodes of an arm whose base stands left or right: state and action have the same axes, whichever they are."""

    def __init__(self, side, noise=0.0, delay=0):
        action = 0.1 * torch.randn(160, 3) * torch.tensor([side, 1.0, 1.0]) + torch.tensor([0.05 * side, 0.0, 0.0])
        moved = action.roll(delay, 0) + noise * torch.randn(160, 3)
        self.state, self.action = torch.cat([torch.zeros(1, 3), moved.cumsum(0)[:-1]]), action

    def __len__(self):
        return len(self.state)

    def __getitem__(self, index):
        return {"state": self.state[index], "action": self.action[index], "episode_index": torch.tensor(index // 40)}


def left_and_right_arm():
    return _program([Arm(1.0), Arm(-1.0)])


def arms_that_answer_late_or_hardly():
    return _program([Arm(1.0), Arm(-1.0, delay=1), Arm(1.0, noise=1.0)])


def movements_in_one_source_and_goals_in_the_other():
    goals = Arm(1.0)
    goals.action = goals.state + goals.action
    return _program([Arm(1.0), goals])


def one_source():
    return _program(_frames(), not_examined="from each of two sources")


def the_same_robot_named_in_each_frame():
    state, action = _frames().state, _frames().action
    return _program(Frames(state, action, robot_type=["arm"] * SIZE), not_examined="from each of two sources")


def frames_without_names():
    parts = [TensorDataset(torch.randn(40, 3), torch.randn(40, 3)) for _ in range(2)]
    program = _program(parts, not_examined="from each of two sources")
    program["loss_fn"] = lambda model, batch: (model(batch[0]) - batch[1]).abs().mean()
    return program


class Stream(IterableDataset):
    def __iter__(self):
        yield from ({"state": torch.randn(3), "action": torch.randn(3)} for _ in range(40))


def stream_of_frames():
    return _program(Stream(), not_examined="from each of two sources")
