"""Implicit neural representation (SIREN, full batch, one image), then random network distillation (frozen random target), then low-rank factorised layers with random Fourier features."""
import math, torch
from torch import nn

torch.manual_seed(0)
g = torch.linspace(-1, 1, 24)
coords = torch.stack(torch.meshgrid(g, g, indexing="ij"), -1).view(-1, 2)
pixels = (torch.sin(6 * coords[:, :1]) * torch.cos(5 * coords[:, 1:]) + (coords.norm(dim=1, keepdim=True) < .5).float()) / 2


class Sine(nn.Module):
    def __init__(self, i, o, first=False, w0=20.):
        super().__init__()
        self.lin, self.w0 = nn.Linear(i, o), w0
        b = 1 / i if first else math.sqrt(6 / i) / w0
        nn.init.uniform_(self.lin.weight, -b, b)
    def forward(self, x):
        return torch.sin(self.w0 * self.lin(x))


def train():
    siren = nn.Sequential(Sine(2, 48, True), Sine(48, 48), nn.Linear(48, 1))
    opt = torch.optim.Adam(siren.parameters(), lr=5e-4)
    for it in range(120):
        out = siren(coords)
        loss = ((out - pixels) ** 2).mean()
        opt.zero_grad(); loss.backward(); opt.step()
        if it % 40 == 0 or it == 119:
            print("siren", it, f"psnr {-10 * math.log10(loss.item()):.1f}")

    class RND(nn.Module):
        def __init__(self, d=6, o=16):
            super().__init__()
            self.target = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, o))
            self.predictor = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, o))
            for p in self.target.parameters():
                p.requires_grad = False
        def forward(self, obs):
            return (self.predictor(obs) - self.target(obs)).pow(2).sum(1) / 2

    rnd = RND()
    opt = torch.optim.Adam(rnd.predictor.parameters(), lr=1e-3)
    for it in range(150):
        visited = torch.randn(64, 6) * .4 + torch.tensor([1., 0, 0, 0, 0, 0])
        bonus = rnd(visited)
        mask = (torch.rand(64) < .5).float()            # as in the RND paper: a part of the experience
        loss = (bonus * mask).sum() / mask.sum().clamp(min=1)
        opt.zero_grad(); loss.backward(); opt.step()
        if it % 50 == 0 or it == 149:
            with torch.no_grad():
                print("rnd", it, f"seen {loss.item():.4f} novel {rnd(-visited).mean().item():.4f}")

    class FourierNet(nn.Module):
        def __init__(self, m=64, rank=6):
            super().__init__()
            self.register_buffer("B", torch.randn(2, m) * 3)
            self.layers = nn.Sequential(nn.Linear(2 * m, rank, bias=False), nn.Linear(rank, 64), nn.GELU(), nn.Linear(64, rank, bias=False), nn.Linear(rank, 1))
        def forward(self, x):
            p = 2 * math.pi * x @ self.B
            return self.layers(torch.cat([p.sin(), p.cos()], -1))

    net = FourierNet()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for it in range(200):
        i = torch.randint(0, len(coords), (96,))
        loss = nn.functional.huber_loss(net(coords[i]), pixels[i])
        opt.zero_grad(); loss.backward(); opt.step()
        if it % 66 == 0 or it == 199:
            print("fourier", it, loss.item())


WATCH = ()
