"""Lesson 13's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("13").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch

from labs.vla.dataset import batches, demonstrations
from policy import build_policy

policy = build_policy(seed=0)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, weight_decay=0.01)
batch = next(batches(demonstrations(32, seed=3), batch_size=32, steps=1, seed=3))
before = [layer.mlp[0].weight.detach().clone() for layer in policy.head.decoder.layers]
for _ in range(10):
    optimizer.zero_grad()
    policy(**batch).loss.backward()
    optimizer.step()

print("layer   .grad is None   gradient norm   turned by   length became")
for number, (layer, old) in enumerate(zip(policy.head.decoder.layers, before, strict=True), start=1):
    weight = layer.mlp[0].weight
    cosine = torch.cosine_similarity(weight.flatten().double(), old.flatten().double(), dim=0)
    angle = torch.rad2deg(torch.acos(cosine.clamp(max=1 - 1e-12)))
    norm = f"{weight.grad.norm():.4f}" if weight.grad.any() else "0"
    print(
        f"{number:>5}   {weight.grad is None!s:>13}   {norm:>13}   {angle:6.2f} °   {weight.norm() / old.norm():12.4%}"
    )
# --8<-- [end:measure]
assert all(layer.mlp[0].weight.grad.abs().max() == 0 for layer in list(policy.head.decoder.layers)[1:])
sys.path.pop(0)
