"""Lesson 27's second measurement: the two factors of a phase."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("27").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:factors]
import torch

from policy import build_policy

exact = build_policy(0).language_model.rotary_emb.inv_freq
rounded = build_policy(0).bfloat16().language_model.rotary_emb.inv_freq
position = torch.tensor(2001)
print("position times frequency:", (position * rounded).dtype)
print("2001 in bfloat16:", int(position.bfloat16()))
print("frequency: float32, bfloat16, and by how many radians the phase of position 2,000 moves")
for wide, narrow in zip(exact.tolist(), rounded.tolist(), strict=True):
    print(f"  {wide:.6f}  {narrow:.6f}  {2000 * (narrow - wide):+.3f}")
# --8<-- [end:factors]
assert int(position.bfloat16()) == 2000
assert (position * rounded).dtype == torch.bfloat16
sys.path.pop(0)
