"""Deep equilibrium classifier: fixed point without graph, implicit gradient through a backward hook."""
import torch
import torch.nn as nn
import torch.nn.functional as F

class Cell(nn.Module):
    def __init__(self, d, n_in):
        super().__init__()
        self.w = nn.utils.parametrizations.spectral_norm(nn.Linear(d, d, bias=False))
        self.u = nn.Linear(n_in, d)
        self.norm = nn.LayerNorm(d)
    def forward(self, z, x):
        return self.norm(torch.tanh(0.8 * self.w(z) + self.u(x)))

class DEQ(nn.Module):
    def __init__(self, d=48, n_in=10, classes=4, iters=20):
        super().__init__()
        self.cell, self.head, self.iters, self.d = Cell(d, n_in), nn.Linear(d, classes), iters, d
    def solve(self, f, z0, tol=1e-4):
        z = z0
        for _ in range(self.iters):
            nz = 0.5 * z + 0.5 * f(z)
            if (nz - z).norm() < tol * (1e-6 + z.norm()):
                return nz
            z = nz
        return z
    def forward(self, x):
        with torch.no_grad():
            z = self.solve(lambda z: self.cell(z, x), x.new_zeros(len(x), self.d))
        z = self.cell(z, x)
        if self.training:
            z0 = z.detach().requires_grad_()
            f0 = self.cell(z0, x)
            def back(g):
                return self.solve(lambda y: torch.autograd.grad(f0, z0, y, retain_graph=True)[0] + g, g)
            z.register_hook(back)
        return self.head(z)

def main():
    torch.manual_seed(0)
    centers = torch.randn(4, 10) * 1.2
    def data(n):
        y = torch.randint(0, 4, (n,))
        return centers[y] * torch.where(torch.rand(n, 1) < .5, 1., -1.) + 0.7 * torch.randn(n, 10), y
    xtr, ytr = data(1024); xte, yte = data(256)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(xtr, ytr), 64, shuffle=True)
    model = DEQ()
    opt = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, epochs=8, steps_per_epoch=len(loader))
    for ep in range(8):
        model.train()
        for x, y in loader:
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            opt.zero_grad(); loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.)
            opt.step(); sched.step()
        model.eval()
        with torch.no_grad():
            print(ep, f"{loss.item():.3f} acc {(model(xte).argmax(1) == yte).float().mean():.3f}")
main()


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
