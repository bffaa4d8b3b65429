"""Lesson 07's comparison with the convolution, run on the lab as shipped."""

import sys

from labs.grading.catalog import find

sys.path.insert(0, str(find("07").folder))
sys.modules.pop("policy", None)

# --8<-- [start:measure]
import torch
import torch.nn.functional as F

from policy import build_policy, patchify

torch.manual_seed(7)
embedding = build_policy(seed=0).vision.embeddings.patch_embedding
for channels in (3, 1):
    image = torch.randn(1, channels, 64, 64)
    weight = embedding.weight[:, :channels]
    convolved = F.conv2d(image, weight, embedding.bias, stride=16).flatten(2).transpose(1, 2)
    embedded = F.linear(patchify(image, 16), weight.flatten(1), embedding.bias)
    print(f"{channels} channels: relative difference {(embedded - convolved).norm() / convolved.norm():.2f}")
# --8<-- [end:measure]
assert torch.allclose(embedded, convolved, atol=1e-4)
sys.path.pop(0)
