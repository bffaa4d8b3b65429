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

UPDATES, SHOWN = 80, (0, 2, 4, 6, 7, 8, 40, 79)
print("parts " + "".join(f"  no. {update:2d}" for update in SHOWN))
print("plan  " + "".join(f"{1e4 * LEARNING_RATE * share_of_peak(update, UPDATES):8.2f}" for update in SHOWN))
frames = demonstrations(64, seed=54)
for parts in (1, 4, 16):
    policy, rates = build_policy(0), []
    optimizer = build_optimizer(policy)
    optimizer.register_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    train(policy, optimizer, batches(frames, 1, steps=UPDATES * parts, seed=0), UPDATES, parts)
    print(f"{parts:5d} " + "".join(f"{1e4 * rates[update]:8.2f}" for update in SHOWN))
# --8<-- [end:measure]
print("second", rates[1])
sys.path.pop(0)
