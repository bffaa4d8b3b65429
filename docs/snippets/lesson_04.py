"""Lesson 04's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("04").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from torch import Tensor

from policy import build_policy

places = build_policy(seed=0).places
checkpoint = places.state_dict()
places.to("meta")  # a second device that every machine has: shapes, and no values

everything = {**dict(places.named_parameters()), **dict(places.named_buffers()), **vars(places)}
for name, value in everything.items():
    if isinstance(value, Tensor):
        print(f"{name:<6} now on {value.device!s:<5} {'in' if name in checkpoint else 'not in'} the checkpoint")
# --8<-- [end:measure]
assert places.table.device.type == "cpu"
sys.path.pop(0)
