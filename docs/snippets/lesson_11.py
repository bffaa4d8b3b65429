"""Lesson 11's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("11").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from labs.vla.dataset import batches, demonstrations
from policy import build_optimizer, build_policy, train_step

policy = build_policy(seed=0)
before = {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
batch = next(batches(demonstrations(32, seed=3), batch_size=32, steps=1, seed=3))
train_step(policy, build_optimizer(policy), batch)

print(f"{'part':<27} parameters  requires_grad  .grad is None  moved")
for part in ("vision", "language_model.embed_tokens", "language_model.layers", "projector", "head"):
    own = [(name, p) for name, p in policy.named_parameters() if name.startswith(part + ".")]
    asked = sum(p.requires_grad for _, p in own)
    none = sum(p.grad is None for _, p in own)
    moved = sum(not p.equal(before[name]) for name, p in own)
    print(f"{part:<27} {len(own):>10}  {asked:>13}  {none:>13}  {moved:>5}")
# --8<-- [end:measure]
assert all(parameter.requires_grad for parameter in policy.vision.parameters())
assert policy.language_model.embed_tokens.weight.grad is None
sys.path.pop(0)
