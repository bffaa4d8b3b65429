import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import debugkit

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 7))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
train = DataLoader(
    TensorDataset(torch.randn(64, 6), torch.randn(64, 7)), batch_size=16, shuffle=True
)
held_out = DataLoader(
    TensorDataset(torch.randn(32, 6), torch.randn(32, 7)), batch_size=16
)

with debugkit.watch(model, optimizer, select="DK321") as run:
    for _epoch in range(2):
        for state, action in train:
            loss = F.mse_loss(model(state), action)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            for held_state, held_action in held_out:
                validation_loss = F.mse_loss(model(held_state), held_action)
print(run.report)
