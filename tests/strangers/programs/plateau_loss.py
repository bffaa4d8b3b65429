"""Regression with ReduceLROnPlateau on the validation loss.

fault plateau_max: DK503
"""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
X = torch.randn(1600, 10)
Y = torch.stack([torch.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2], X[:, 3].abs() - X[:, 4] ** 2 / 2], 1)
train_dl = DataLoader(TensorDataset(X[:1280], Y[:1280]), batch_size=64, shuffle=True)
val_dl = DataLoader(TensorDataset(X[1280:], Y[1280:]), batch_size=160)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(10, 64), nn.Linear(64, 64), nn.Linear(64, 2)

    def forward(self, x):
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


def train():
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", factor=0.1, patience=2)  #! plateau_max: scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.1, patience=2)
    mse = nn.MSELoss()

    def run_epoch(loader, train):
        net.train(train)
        total = 0.0
        with torch.set_grad_enabled(train):
            for x, y in loader:
                loss = mse(net(x), y)
                if train:
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                total += loss.item() * len(x)
        return total / len(loader.dataset)

    for epoch in range(24):
        tr = run_epoch(train_dl, True)
        va = run_epoch(val_dl, False)
        scheduler.step(va)
        if epoch % 4 == 3:
            print(f"epoch {epoch} train {tr:.4f} val {va:.4f} lr {optimizer.param_groups[0]['lr']:.1e}")


WATCH = ()
