"""Lesson 02's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("02").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from labs.vla.dataset import batches, demonstrations
from policy import build_training

policy, optimizer = build_training(seed=0)
batch = next(batches(demonstrations(8, seed=2), batch_size=8, steps=1, seed=2))
actions = policy.head.encode(policy.action_statistics.normalize(batch["action"]))

print("tokens that the tokenizer knows  ", len(policy.tokenizer))
print("rows that are read               ", len(policy.language_model.embed_tokens.weight))
print("rows that are said               ", len(policy.lm_head.weight))
print("ids of the instructions          ", batch["input_ids"].min().item(), "to", batch["input_ids"].max().item())
print("ids of the actions               ", actions.min().item(), "to", actions.max().item())
# --8<-- [end:measure]
assert actions.max() >= len(policy.lm_head.weight)
sys.path.pop(0)
