"""Lesson 26's second measurement: the distribution of the times, on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("26").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:times]
import torch
from policy import sample_times

torch.manual_seed(26)
print("dtype of the features     NaN   different times   mean   below 0.25    0.5   0.75")
for dtype in (torch.bfloat16, torch.float32):
    times = sample_times(torch.zeros(2**20, 1, dtype=dtype))
    known = times[~times.isnan()]
    shares = "   ".join(f"{(known < at).float().mean():.3f}" for at in (0.25, 0.5, 0.75))
    print(f"{dtype!s:<20} {times.isnan().sum():8,} {known.unique().numel():17,}   {known.mean():.3f}   {shares}")
stated = "   ".join(f"{((at - 0.001) / 0.999) ** 1.5:.3f}" for at in (0.25, 0.5, 0.75))
print(f"as the file states          0           any   {0.001 + 0.999 * 0.6:.3f}   {stated}")
# --8<-- [end:times]
assert known.mean() < 0.57
sys.path.pop(0)
