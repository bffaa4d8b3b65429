"""Lesson 49's second measurement: the names of the file and of the policy, for the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("49").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from collections import Counter

from safetensors.torch import load_file

from labs.vla.policy import BASE_CHECKPOINT
from policy import build_policy

saved, own = load_file(BASE_CHECKPOINT), build_policy(seed=0).state_dict()
print(f"{len(saved)} tensors in the file, {len(saved.keys() & own.keys())} of them under a name of the policy's")
for title, names in (
    ("only in the file", saved.keys() - own.keys()),
    ("only in the policy", own.keys() - saved.keys()),
):
    print(f"\n{title}: {len(names)}")
    for part, count in sorted(Counter(".".join(name.split(".")[:2]) for name in names).items()):
        print(f"  {count:2d}  {part}.…")
# --8<-- [end:measure]
assert len(saved.keys() - own.keys()) == 21
sys.path.pop(0)
