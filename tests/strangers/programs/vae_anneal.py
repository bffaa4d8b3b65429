"""Convolution-free VAE on binary stroke patterns whose KL weight is annealed linearly, written as a Trainer class.

fault std_is_var: none
fault recon_mean: none
fault integer_beta: none
fault keeps_graph: DK601
"""
import torch
from torch import nn
from torch.nn import functional as F


class StrokeData(torch.utils.data.Dataset):
    def __init__(self, n, side=8, seed=0):
        g = torch.Generator().manual_seed(seed)
        grid = torch.zeros(n, side, side)
        rows = torch.randint(0, side, (n,), generator=g)
        cols = torch.randint(0, side, (n,), generator=g)
        idx = torch.arange(n)
        grid[idx, rows] = 1.0
        grid[idx, :, cols] = 1.0
        flip = torch.rand(n, side, side, generator=g) < 0.02
        self.x = torch.where(flip, 1 - grid, grid).flatten(1)

    def __len__(self):
        return self.x.size(0)

    def __getitem__(self, i):
        return self.x[i]


class VAE(nn.Module):
    def __init__(self, d=64, hidden=96, z=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(d, hidden), nn.Tanh(), nn.Linear(hidden, 2 * z))
        self.decoder = nn.Sequential(nn.Linear(z, hidden), nn.Tanh(), nn.Linear(hidden, d))

    def encode(self, x):
        mu, logvar = self.encoder(x).chunk(2, dim=-1)
        return mu, logvar.clamp(-8, 4)

    def forward(self, x):
        mu, logvar = self.encode(x)
        std = torch.exp(0.5 * logvar)  #! std_is_var: std = torch.exp(logvar)
        z = mu + std * torch.randn_like(std)
        return self.decoder(z), mu, logvar


class Trainer:
    def __init__(self, epochs=9, batch_size=64, lr=4e-3, warm_steps=60):
        torch.manual_seed(2)
        self.model = VAE()
        self.loader = torch.utils.data.DataLoader(StrokeData(768), batch_size, shuffle=True)
        self.holdout = StrokeData(128, seed=1).x
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.epochs, self.warm_steps = epochs, warm_steps
        self.step = 0
        self.history = []
        self.elbo = []

    @property
    def beta(self):
        return min(1.0, self.step / self.warm_steps)  #! integer_beta: return min(1.0, self.step // self.warm_steps)

    def terms(self, x):
        logits, mu, logvar = self.model(x)
        rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)  #! recon_mean: rec = F.binary_cross_entropy_with_logits(logits, x, reduction="mean")
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(dim=-1).mean()
        return rec, kl

    def fit(self):
        for _ in range(self.epochs):
            self.model.train()
            for x in self.loader:
                rec, kl = self.terms(x)
                loss = rec + self.beta * kl
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.step += 1
                self.history.append((rec + kl).item())  #! keeps_graph: self.history.append(rec + kl)
            self.evaluate()
        return self

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        rec, kl = self.terms(self.holdout)
        self.elbo.append(-(rec + kl).item())


def train():
    t = Trainer().fit()
    return t.history, t.elbo


WATCH = ()
