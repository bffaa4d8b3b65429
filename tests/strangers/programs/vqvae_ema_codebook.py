"""VQ-VAE: straight-through estimator, EMA codebook, dead-code revival."""
import math, torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def make_images(n):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij")
    c = torch.rand(n, 2) * 1.2 - .6
    r = torch.rand(n, 1, 1) * .25 + .2
    d = ((xx[None] - c[:, 0, None, None]) ** 2 + (yy[None] - c[:, 1, None, None]) ** 2).sqrt()
    return torch.sigmoid((r - d) * 20)[:, None]


class VectorQuantizerEMA(nn.Module):
    def __init__(self, k, d, decay=.95, eps=1e-5):
        super().__init__()
        self.k, self.decay, self.eps = k, decay, eps
        e = torch.randn(k, d) * .3
        self.register_buffer("embed", e)
        self.register_buffer("cluster_size", torch.ones(k))
        self.register_buffer("embed_avg", e.clone())

    def forward(self, z):                                   # z: B D H W
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        dist = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.embed.t() + self.embed.pow(2).sum(1)
        idx = dist.argmin(1)
        q = F.embedding(idx, self.embed).view(z.shape[0], *z.shape[2:], -1).permute(0, 3, 1, 2)
        if self.training:
            with torch.no_grad():
                onehot = F.one_hot(idx, self.k).type_as(flat)
                n = onehot.sum(0)
                self.cluster_size.mul_(self.decay).add_(n, alpha=1 - self.decay)
                self.embed_avg.mul_(self.decay).add_(onehot.t() @ flat, alpha=1 - self.decay)
                tot = self.cluster_size.sum()
                cs = (self.cluster_size + self.eps) / (tot + self.k * self.eps) * tot
                self.embed.copy_(self.embed_avg / cs[:, None])
                dead = self.cluster_size < .05
                if dead.any():
                    pick = flat[torch.randint(len(flat), (int(dead.sum()),))]
                    self.embed[dead] = pick
                    self.embed_avg[dead] = pick
                    self.cluster_size[dead] = 1.
        commit = F.mse_loss(z, q.detach())
        q = z + (q - z).detach()
        return q, commit, idx


class VQVAE(nn.Module):
    def __init__(self, d=16, k=32):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 24, 4, 2, 1), nn.ReLU(True), nn.Conv2d(24, 32, 4, 2, 1), nn.ReLU(True), nn.Conv2d(32, d, 1))
        self.vq = VectorQuantizerEMA(k, d)
        self.dec = nn.Sequential(nn.ConvTranspose2d(d, 32, 4, 2, 1), nn.ReLU(True), nn.ConvTranspose2d(32, 1, 4, 2, 1))

    def forward(self, x):
        q, commit, idx = self.vq(self.enc(x))
        return torch.sigmoid(self.dec(q)), commit, idx


def train():
    loader = DataLoader(TensorDataset(make_images(1024)), batch_size=32, shuffle=True, drop_last=True)
    val = make_images(128)
    net = VQVAE()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(4):
        net.train()
        for (x,) in loader:
            recon, commit, _ = net(x)
            loss = F.mse_loss(recon, x) + .25 * commit
            opt.zero_grad()
            loss.backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            r, _, idx = net(val)
            p = torch.bincount(idx, minlength=32).float() / idx.numel()
            ppl = math.exp(-(p * (p + 1e-9).log()).sum())
            print(f"epoch {epoch} val mse {F.mse_loss(r, val).item():.4f} perplexity {ppl:.1f}")


WATCH = ()
