"""Lesson 46's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("46").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch

from labs.two_robots import recordings
from policy import FORMATS, mixture

for robot, own in FORMATS.items():
    recorded = recordings(robot, 300, seed=46)
    length = (~recorded.action_is_pad).sum(axis=1)
    ended = length < 4  # padding begins where an episode is over
    last = ended.nonzero()[0], length[ended] - 1  # its last step, in which the gripper closes
    targets = mixture({robot: recorded}).action
    back = own.command(torch.from_numpy(targets)).numpy()
    print(f"{robot}, the last step of {ended.sum()} episodes:")
    print(f"  the gripper's command, as recorded  {recorded.action[last][:, 2].mean():+.2f}")
    print(f"  its target in the mixture           {targets[last][:, 2].mean():+.2f}")
    print(f"  its command, from that target       {back[last][:, 2].mean():+.2f}")
# --8<-- [end:measure]
assert targets[last][:, 2].mean() == -1
sys.path.pop(0)
