"""The measurements of the guide "Out of memory", on a loop that keeps its losses."""

import torch
from torch import nn

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
optimizer = torch.optim.AdamW(model.parameters())


def make_batch(size):
    return torch.ones(size, 512)


def loss_fn(model, batch):
    return (model(batch) - batch).pow(2).mean()


batch = make_batch(256)
# --8<-- [start:budget]
print(debugkit.memory_profile(model, batch, loss_fn, optimizer=optimizer))
# --8<-- [end:budget]
losses = []
# --8<-- [start:leak]
with debugkit.watch(model, optimizer, select="DK6") as run:
    for _ in range(12):
        optimizer.zero_grad()
        loss = loss_fn(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss)  # the loss, and with it the graph of this step
print(run.report)
# --8<-- [end:leak]
# --8<-- [start:size]
found = debugkit.find_batch_size(make_batch, model, loss_fn, optimizer=optimizer, budget_bytes=48 * 2**20, start=512)
print(found.batch_size)
# --8<-- [end:size]
assert "DK601" in run.report.by_code
assert found.batch_size >= 512
