"""Lesson 27's measurement, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("27").folder))  # as in the workspace, where the file is in the current folder
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch

from policy import build_policy

positions = torch.tensor([[16, 128, 256, 512, 1024, 2000]])
frequencies = 10_000 ** (-torch.arange(8, dtype=torch.float64) / 8)
exact = (positions[..., None] * frequencies).cos()
for dtype in (torch.float32, torch.bfloat16):
    rotary = build_policy(0).to(dtype).language_model.rotary_emb
    cos, _ = rotary(torch.zeros(1, dtype=dtype), positions)
    errors = (cos[..., :8] - exact).abs().amax(dim=-1)[0]
    print(str(dtype).removeprefix("torch."))
    for position, error in zip(positions[0].tolist(), errors.tolist(), strict=True):
        print(f"  position {position:4d}: a cosine is off by up to {error:.4f}")
cos, _ = rotary(torch.zeros(1, dtype=dtype), torch.arange(2000, 2017)[None])
print("rows that equal the one before:", [2000 + i for i in range(1, 17) if torch.equal(cos[0, i], cos[0, i - 1])])
# --8<-- [end:measure]
assert errors[-1] > 0.1
sys.path.pop(0)
