"""Lesson 01's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("01").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch
from policy import FlowPolicy, seven_joint_arm

import debugkit

config = seven_joint_arm()
batch = {
    "pixel_values": torch.randn(32, 3, 64, 64),
    "input_ids": torch.full((32, 8), 2),
    "attention_mask": torch.ones(32, 8, dtype=torch.long),
    "state": torch.randn(32, config.state_dim),
    "action": torch.randn(32, config.horizon, config.action_dim),
}
trace = debugkit.trace_shapes(FlowPolicy(config), batch)
print(trace)
# --8<-- [end:measure]
assert trace.failure is not None
assert (trace.failure.expected, trace.failure.received) == (92, 115)
sys.path.pop(0)
