"""Lesson 23's table: two logits, ever further apart, and a target that the policy is right about."""

# --8<-- [start:table]
import torch

for apart in (10, 50, 87, 103, 104, 200):
    logits = torch.tensor([float(apart), 0.0], requires_grad=True)
    log_p = logits.softmax(dim=-1).log()
    (-log_p[0]).backward()  # the target is bin 0, by far the likeliest
    right, other = log_p.detach().abs().tolist()
    gradient = f"{logits.grad[0]:8.1e} {logits.grad[1]:8.1e}"
    print(f"{apart:3d} apart   loss {right:.4f}   log p of the other bin {-other:7.2f}   gradient {gradient}")
# --8<-- [end:table]
assert right == 0.0
assert logits.grad.isnan().all()
