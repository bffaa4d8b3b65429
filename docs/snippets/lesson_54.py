"""Lesson 54's measurement, run on the lab as shipped."""

import sys
import warnings

from labs.grading.catalog import find

warnings.filterwarnings("ignore", "Detected call of `lr_scheduler", UserWarning)
sys.path.insert(0, str(find("54").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from policy import LEARNING_RATE, build_optimizer, build_policy, share_of_peak, train

from labs.vla.dataset import batches, demonstrations

UPDATES = 80
frames = demonstrations(64, seed=54)


def rates(parts: int) -> list[float]:
    """The learning rate that each update uses, with so many micro-batches of one frame."""
    policy, used = build_policy(seed=0), []
    optimizer = build_optimizer(policy)
    optimizer.register_step_pre_hook(lambda optimizer, *_: used.append(optimizer.param_groups[0]["lr"]))
    train(policy, optimizer, batches(frames, 1, steps=UPDATES * parts, seed=0), UPDATES, parts)
    return used


def show(name: str, rates: list[float]) -> None:
    shown = " ".join(f"{1e4 * rates[update]:5.2f}" for update in (0, 2, 4, 6, 8, 18, 40, 79))
    print(f"{name:14} {shown}   {sum(rate > 0 for rate in rates)} of {len(rates)} above 0")


print("units of 1e-4      0     2     4     6     8    18    40    79")
show("planned", [LEARNING_RATE * share_of_peak(update, UPDATES) for update in range(UPDATES)])
for parts in (1, 4, 16):
    show(f"{parts} per update", rates(parts))
# --8<-- [end:measure]
assert rates(4)[0] > 4e-4
sys.path.pop(0)
