"""Lesson 44's table: what an in-place operation and an assignment change behind each kind of index."""

# --8<-- [start:measure]
import torch

indices = {
    "slice": slice(0, 2),
    "whole number": 0,
    "list": [0, 1],
    "mask": torch.tensor([True, True, False]),
}
for name, index in indices.items():
    filled, assigned = torch.ones(3), torch.ones(3)
    filled[index].fill_(0)
    assigned[index] = 0
    print(f"{name:13} fill_: {filled.tolist()}   =: {assigned.tolist()}")
# --8<-- [end:measure]
assert filled.tolist() == [1, 1, 1]
