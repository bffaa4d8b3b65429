"""One-step electricity-like load forecaster: sliding windows, splits in time, standardisation and errors in original units.

fault whole_series_stats: none
fault target_in_window: none
fault broadcast_target: DK002 at "(model(x) - y)"
fault units_mixed: none
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

rs = np.random.RandomState(17)
CONTEXT = 24


def synth(n=900):
    t = np.arange(n)
    trend = 0.04 * t
    daily = 12 * np.sin(2 * np.pi * t / 24) + 4 * np.sin(4 * np.pi * t / 24 + 1)
    weekly = 5 * np.sin(2 * np.pi * t / 168)
    ar = np.zeros(n)
    for i in range(1, n):
        ar[i] = 0.8 * ar[i - 1] + rs.randn()
    return (100 + trend + daily + weekly + ar).astype(np.float32)


class Windows(Dataset):
    """Window i holds CONTEXT values; its target is the value right after them."""

    def __init__(self, values):
        self.v = torch.from_numpy(values)

    def __len__(self):
        return len(self.v) - CONTEXT

    def __getitem__(self, i):
        return self.v[i:i + CONTEXT], self.v[i + CONTEXT]  #! target_in_window: return self.v[i:i + CONTEXT], self.v[i + CONTEXT - 1]


class Forecaster(nn.Module):
    """GRU on differences to the last value; it predicts the next difference, so that trends do no harm."""

    def __init__(self, h=24):
        super().__init__()
        self.rnn = nn.GRU(1, h, batch_first=True)
        self.out = nn.Linear(h, 1)

    def forward(self, x):
        last = x[:, -1:]
        seq, _ = self.rnn((x - last).unsqueeze(-1))
        y = last + self.out(seq[:, -1])
        return y.squeeze(-1)  #! broadcast_target: return y


@torch.no_grad()
def rmse(model, loader, mu, sd):
    model.eval()
    se, n = 0.0, 0
    for x, y in loader:
        pred = model(x).flatten()
        err = (pred * sd + mu) - (y * sd + mu)  #! units_mixed: err = pred - y
        se += err.square().sum().item()
        n += len(y)
    return (se / n) ** 0.5


def train():
    rs.seed(17)
    torch.manual_seed(17)
    raw = synth()
    cut1, cut2 = int(0.7 * len(raw)), int(0.85 * len(raw))
    fit = raw[:cut1]  #! whole_series_stats: fit = raw
    mu, sd = float(fit.mean()), float(fit.std())
    z = (raw - mu) / sd
    # val and test reach back CONTEXT values for their first input; their targets stay disjoint from the training ones
    parts = z[:cut1], z[cut1 - CONTEXT:cut2], z[cut2 - CONTEXT:]
    tr, va, te = (DataLoader(Windows(p), batch_size=64, shuffle=i == 0) for i, p in enumerate(parts))
    model = Forecaster()
    opt = torch.optim.RMSprop(model.parameters(), lr=3e-3)
    best, best_state, losses, val = float("inf"), None, [], []
    for epoch in range(12):
        model.train()
        for x, y in tr:
            loss = (model(x) - y).abs().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        val.append(rmse(model, va, mu, sd))
        if val[-1] < best:
            best, best_state = val[-1], {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(best_state)
    test_rmse = rmse(model, te, mu, sd)
    naive = float(np.sqrt(np.mean((raw[cut2:] - raw[cut2 - 1:-1]) ** 2)))
    return losses, val, {"test": test_rmse, "naive": naive}


WATCH = ()
