"""Lesson 33's second measurement: what the language model receives."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("33").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:positions]
from labs.vla.dataset import demonstrations, observation_batch
from policy import build_policy

policy, frames = build_policy(0).eval(), demonstrations(6, seed=6)
masks, positions = [], []
policy.language_model.register_forward_pre_hook(
    lambda _module, _args, kwargs: masks.append(kwargs["attention_mask"]), with_kwargs=True
)
policy.language_model.rotary_emb.register_forward_pre_hook(
    lambda _module, _args, kwargs: positions.append(kwargs["position_ids"]), with_kwargs=True
)
batch = observation_batch(frames.image, frames.state, frames.instruction)
policy.generate(batch)
for name, mask, position in zip(("state", "dx", "dy"), masks, positions, strict=True):
    position = position[:, -1].expand(len(mask))
    print(f"{name:5}  tokens before it {(mask.sum(dim=1) - 1).tolist()}  position {position.tolist()}")
# --8<-- [end:positions]
assert position.unique().numel() == 1
assert mask.sum(dim=1).unique().numel() > 1
sys.path.pop(0)
