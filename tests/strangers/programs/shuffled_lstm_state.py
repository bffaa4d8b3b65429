"""An LSTM predicts a label for windows in shuffled order; each forward begins with a zero state.

fault state_of_the_last_batch: none
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)
x = torch.randn(128, 10, 4)
y = (x[:, :, 0].mean(1) > 0).float()

class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 16, batch_first=True)
        self.fc = nn.Linear(16, 1)
        self.hidden = None
    def forward(self, x):
        self.hidden = None  #! state_of_the_last_batch: pass
        out, hidden = self.lstm(x, self.hidden)
        self.hidden = tuple(h.detach() for h in hidden)
        return self.fc(out[:, -1]).squeeze(-1)

model = Forecaster()
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)

def train():
    for epoch in range(5):
        for xb, yb in loader:
            optimizer.zero_grad()
            criterion(model(xb), yb).backward()
            optimizer.step()

CHECK = lambda: dict(model=model, batch=next(iter(loader)), loss_fn=lambda m, b: criterion(m(b[0]), b[1]), optimizer=optimizer, dataloader=loader)
WATCH = (model, optimizer)
