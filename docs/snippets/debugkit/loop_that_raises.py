import contextlib

import torch
from torch import nn

import debugkit

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(32, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, instruction):
        return self.head(self.words(instruction).mean(dim=1))


policy = Policy()
optimizer = torch.optim.AdamW(policy.parameters())
batches = torch.randint(32, (20, 4, 6))
batches[12, 2, 5] = 32  # a word that was added to the tokenizer

run = debugkit.watch(policy, optimizer)
with contextlib.suppress(IndexError), run:
    for batch in batches:
        optimizer.zero_grad()
        policy(batch).square().mean().backward()
        optimizer.step()
(finding,) = run.report.errors
print(finding.code, finding.message)
print(finding.fix)
assert finding.location.step == 12
