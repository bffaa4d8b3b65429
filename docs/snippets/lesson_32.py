"""Lesson 32's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("32").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from policy import DOWN, GRASP, LEFT, PLAN_WORDS, RIGHT, UP, collate_plans

plans = [[UP, GRASP], [RIGHT, RIGHT, DOWN, GRASP], [LEFT, LEFT, LEFT, UP, UP, GRASP]]
batch = collate_plans(plans)
print(list(enumerate(PLAN_WORDS)))
for name, rows in batch.items():
    print(name)
    for row in rows.tolist():
        print("  ", row)
print("words in the plans, <end> included ", sum(len(words) + 1 for words in plans))
print("places that the loss does not ignore", (batch["labels"] != -100).sum().item())
# --8<-- [end:measure]
assert (batch["labels"] != -100).all()
sys.path.pop(0)
