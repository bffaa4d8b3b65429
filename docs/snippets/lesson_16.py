"""Lesson 16's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("16").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
from math import inf

from torch.nn.utils import clip_grad_norm_

from labs.vla.dataset import batches, demonstrations
from policy import DeepHeadPolicy

policy = DeepHeadPolicy.from_base(seed=16)
batch = next(batches(demonstrations(32, seed=16), batch_size=16, steps=1, seed=16))
signal = {}
for layer in policy.head.layers:
    layer.register_forward_hook(lambda layer, _, out: signal.update({layer: out.std(dim=0).mean().item()}))

policy(**batch).loss.backward()

print("           gradient norm   differs from frame to frame by")
for index, layer in enumerate(policy.head.layers):
    norm = clip_grad_norm_([layer.linear.weight], inf)  # clips nothing, returns the norm
    print(f"layers.{index}         {norm:.1e}                          {signal[layer]:.1e}")
# --8<-- [end:measure]
assert clip_grad_norm_([policy.head.layers[0].linear.weight], inf) < 1e-5 * norm
sys.path.pop(0)
