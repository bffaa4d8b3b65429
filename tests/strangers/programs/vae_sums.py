"""A VAE whose reconstruction and KL terms are both sums for each sample.

fault reconstruction_mean: none
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
basis = torch.randn(4, 64)


def sample(n):
    return torch.sigmoid(torch.randn(n, 4) @ basis)


class VAE(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
        self.mu, self.logvar = nn.Linear(128, latent), nn.Linear(128, latent)
        self.dec = nn.Sequential(nn.Linear(latent, 128), nn.ReLU(), nn.Linear(128, 64), nn.Sigmoid())

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo(recon, x, mu, logvar):
    rec = F.mse_loss(recon, x, reduction="sum") / len(x) * 10  #! reconstruction_mean: rec = F.mse_loss(recon, x)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(dim=1).mean()
    return rec + kl, kl


def train():
    vae = VAE()
    opt = torch.optim.Adam(vae.parameters(), lr=2e-3)
    for it in range(500):
        x = sample(64)
        recon, mu, logvar = vae(x)
        loss, kl = elbo(recon, x, mu, logvar)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 100 == 99:
            print(f"{it} loss {loss.item():.4f} kl {kl.item():.5f} mse {F.mse_loss(recon, x).item():.4f}")
    with torch.no_grad():
        x = sample(500)
        recon, mu, _ = vae(x)
        print("share of variance explained:", (1 - (recon - x).pow(2).mean() / (x - x.mean(0)).pow(2).mean()).item(),
              "std of mu:", mu.std(0).mean().item())


WATCH = ()
