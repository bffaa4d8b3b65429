"""Lesson 18's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("18").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:rounding]
import torch

import debugkit
from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import Policy
from policy import GatedActivation, build_policy

batch = next(batches(demonstrations(8, seed=3), batch_size=8, steps=1, seed=3))


def gate_gradient(policy, dtype):
    floating = {name: x.to(dtype) if x.is_floating_point() else x for name, x in batch.items()}
    policy.to(dtype)(**floating).loss.backward()
    return policy.language_model.layers[0].mlp.gate_proj.weight.grad


for dtype in (torch.float32, torch.float64):
    stock, ours = (gate_gradient(p, dtype) for p in (Policy.from_base(seed=0), build_policy(seed=0)))
    cosine = torch.cosine_similarity(ours.flatten(), stock.flatten(), dim=0)
    print(f"{dtype}: relative difference {(ours - stock).norm() / stock.norm():.4f}, cosine {cosine:.4f}")
    # --8<-- [end:rounding]
    assert cosine < 0.99

# --8<-- [start:gradcheck]
torch.manual_seed(0)
gate, up = torch.randn(2, 3), torch.randn(2, 3)
print()
print(debugkit.gradcheck(GatedActivation, gate, up))
# --8<-- [end:gradcheck]
assert not debugkit.gradcheck(GatedActivation, gate, up)
sys.path.pop(0)
