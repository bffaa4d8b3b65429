import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 7))
data = TensorDataset(torch.randn(64, 6), torch.randn(64, 7))
loader = DataLoader(data, batch_size=16, shuffle=True)

with debugkit.watch(model, select="DK511") as run:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _epoch in range(3):
        for state, action in loader:
            loss = (model(state) - action).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
print(run.report)
