"""Lesson 62's table of the two switches, run."""

# --8<-- [start:modes]
import torch
from torch import nn

layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
x = torch.ones(1, 4)

print("mode     switch     dropout drops   graph")
for mode in ("train", "eval"):
    for switch in (torch.enable_grad, torch.no_grad):
        getattr(layer, mode)()
        with switch():
            outputs = [layer(x) for _ in range(20)]
        drops = any((output == 0).any() for output in outputs)
        print(f"{mode:<8} {switch.__name__:<11}  {drops!s:<14} {outputs[0].grad_fn is not None}")
# --8<-- [end:modes]
assert outputs[0].grad_fn is None
assert not drops
