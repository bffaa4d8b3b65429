"""WGAN-GP on a ring of Gaussians: n_critic, double backward, RMS-free Adam betas (0, .9)."""
import math, torch
from torch import nn, autograd

torch.manual_seed(2)
mlp = lambda *s, act: nn.Sequential(*[m for i, o in zip(s[:-2], s[1:-1]) for m in (nn.Linear(i, o), act())], nn.Linear(s[-2], s[-1]))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp(2, 64, 64, 1, act=lambda: nn.LeakyReLU(.2, inplace=True))

    def forward(self, x):
        return self.body(x).squeeze(1)


class Generator(nn.Module):
    latent = 8

    def __init__(self):
        super().__init__()
        self.body = mlp(self.latent, 64, 64, 2, act=nn.ReLU)

    def forward(self, z):
        return self.body(z)


def real(n):
    k = torch.randint(0, 8, (n,)).float() * (2 * math.pi / 8)
    return torch.stack((k.cos(), k.sin()), 1) + .05 * torch.randn(n, 2)


def gradient_penalty(D, x, y):
    eps = torch.rand(x.size(0), 1)
    mid = (eps * x + (1 - eps) * y).requires_grad_(True)
    g, = autograd.grad(D(mid).sum(), mid, create_graph=True)
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


def train():
    D, G = Critic(), Generator()
    optD = torch.optim.Adam(D.parameters(), 1e-3, betas=(0., .9))
    optG = torch.optim.Adam(G.parameters(), 1e-3, betas=(0., .9))

    def energy_distance(n=512):
        with torch.no_grad():
            x, y = real(n), G(torch.randn(n, G.latent))
            return (2 * torch.cdist(x, y).mean() - torch.cdist(x, x).mean() - torch.cdist(y, y).mean()).item()

    print("start energy distance", energy_distance())
    for it in range(120):
        for p in D.parameters():
            p.requires_grad_(True)
        for _ in range(4):
            x = real(128)
            with torch.no_grad():
                fake = G(torch.randn(128, G.latent))
            D.zero_grad()
            w = D(fake).mean() - D(x).mean()
            gp = gradient_penalty(D, x, fake)
            (w + 2. * gp).backward()
            optD.step()
        for p in D.parameters():
            p.requires_grad_(False)
        G.zero_grad()
        g_loss = -D(G(torch.randn(128, G.latent))).mean()
        g_loss.backward()
        optG.step()
        if it % 30 == 29:
            print(it, f"W {-w.item():.3f} gp {gp.item():.3f} energy {energy_distance():.4f}")


WATCH = ()
