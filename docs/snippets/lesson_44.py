"""Lesson 44's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("44").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch

from policy import EnsemblingRobots, build_policy

policy = build_policy(0)
policy.predict = lambda _: torch.zeros(1, 8, 3)  # stay where you are
there, here = torch.tensor([[0.9, 0.5, -1.0]]), torch.tensor([[0.1, 0.5, -1.0]])
for how in ("reset()", "reset(mask)"):
    robots = EnsemblingRobots(policy, num_robots=1)
    for _ in range(3):
        robots.select_action({"state": there})
    robots.reset() if how == "reset()" else robots.reset(torch.tensor([True]))
    action = robots.select_action({"state": here})
    print(f"{how:11} {robots.weight[0, 0].item():.2f} plans count, move {100 * action[0, 0]:.1f} cm")
# --8<-- [end:measure]
assert 60 < 100 * action[0, 0] < 61
sys.path.pop(0)
