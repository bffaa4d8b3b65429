"""Lesson 15's explanation: one checkpointed layer, in both variants."""

# --8<-- [start:layer]
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

warnings.simplefilter("always")
layer = nn.Linear(4, 4)  # its weight requires a gradient
print("use_reentrant   requires_grad of the input   of the output")
for reentrant in (True, False):
    for needs_gradient in (False, True):
        features = torch.randn(2, 4, requires_grad=needs_gradient)
        with warnings.catch_warnings(record=True) as told:
            out = checkpoint(layer, features, use_reentrant=reentrant)
        print(f"{reentrant!s:13}   {needs_gradient!s:26}   {out.requires_grad}")
        for warning in told:
            print(f"    UserWarning: {warning.message}")
# --8<-- [end:layer]
assert out.requires_grad
