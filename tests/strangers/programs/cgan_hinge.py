"""Conditional GAN with spectral norm, a projection discriminator, hinge loss and two optimizers, on 16x16 stroke images.

fault d_in_g_opt: DK104
fault d_no_zero: DK501
fault real_unscaled: DK301|DK319
fault labels_redrawn: none
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm as sn

N_CLS, ZDIM = 4, 16


def strokes(n, gen):
    """uint8 images: horizontal, vertical, diagonal, anti-diagonal strokes at random offsets."""
    y = torch.randint(N_CLS, (n,), generator=gen)
    off = torch.randint(-2, 3, (n, 1, 1), generator=gen).float()
    r = torch.arange(16.0) - 7.5
    gy, gx = torch.meshgrid(r, r, indexing="ij")
    lines = torch.stack([gy, gx, (gy - gx) / 1.414, (gy + gx) / 1.414])
    img = 255 * torch.exp(-((lines[y] - off) ** 2) / 3) + 12 * torch.randn(n, 16, 16, generator=gen)
    return img.clamp(0, 255).to(torch.uint8).unsqueeze(1), y


class Generator(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.emb = nn.Embedding(N_CLS, ZDIM)
        self.fc = nn.Linear(2 * ZDIM, 2 * ch * 16)
        self.net = nn.Sequential(
            nn.BatchNorm2d(2 * ch), nn.ReLU(),
            nn.ConvTranspose2d(2 * ch, ch, 4, 2, 1), nn.BatchNorm2d(ch), nn.ReLU(),
            nn.ConvTranspose2d(ch, 1, 4, 2, 1), nn.Tanh())

    def forward(self, z, y):
        h = self.fc(torch.cat([z, self.emb(y)], 1))
        return self.net(h.view(len(z), -1, 4, 4))


class Discriminator(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.body = nn.Sequential(
            sn(nn.Conv2d(1, ch, 4, 2, 1)), nn.LeakyReLU(0.2),
            sn(nn.Conv2d(ch, 2 * ch, 4, 2, 1)), nn.LeakyReLU(0.2))
        self.out = sn(nn.Linear(32 * ch, 1))
        self.emb = sn(nn.Embedding(N_CLS, 32 * ch))

    def forward(self, x, y):
        h = self.body(x).flatten(1)
        return self.out(h).squeeze(1) + (self.emb(y) * h).sum(1)


@torch.no_grad()
def class_mean_gap(G, real, y, gen):
    """Distance between the mean real and mean fake picture, averaged over the classes (in [-1, 1] units)."""
    was = G.training
    G.eval()
    gap = 0.0
    for c in range(N_CLS):
        z = torch.randn(128, ZDIM, generator=gen)
        fake = G(z, torch.full((128,), c)).mean(0)
        gap += (fake - real[y == c].mean(0)).abs().mean().item() / N_CLS
    G.train(was)
    return gap


def main(args):
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    raw, y_all = strokes(1024, gen)
    x_all = raw.float() / 127.5 - 1  #! real_unscaled: x_all = raw.float()
    G, D = Generator(), Discriminator()
    opt_g = torch.optim.Adam(G.parameters(), lr=args.lr_g, betas=(0.0, 0.9))  #! d_in_g_opt: opt_g = torch.optim.Adam([*G.parameters(), *D.parameters()], lr=args.lr_g, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(D.parameters(), lr=args.lr_d, betas=(0.0, 0.9))
    held_x, held_y = strokes(512, gen)
    held_x = held_x.float() / 127.5 - 1
    gap0 = class_mean_gap(G, held_x, held_y, gen)
    for step in range(args.steps):
        for _ in range(args.d_per_g):
            idx = torch.randint(len(x_all), (args.batch,))
            x, y = x_all[idx], y_all[idx]
            with torch.no_grad():
                fake = G(torch.randn(len(x), ZDIM), y)
            y_fake = y  #! labels_redrawn: y_fake = torch.randint(N_CLS, (len(x),))
            loss_d = F.relu(1 - D(x, y)).mean() + F.relu(1 + D(fake, y_fake)).mean()
            opt_d.zero_grad()  #! d_no_zero: pass
            loss_d.backward()
            opt_d.step()
        y = torch.randint(N_CLS, (args.batch,))
        fake = G(torch.randn(args.batch, ZDIM), y)
        y_fake = y  #! labels_redrawn: y_fake = torch.randint(N_CLS, (args.batch,))
        loss_g = -D(fake, y_fake).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        if step % 50 == 0 or step == args.steps - 1:
            print(f"step {step} D {loss_d.item():.3f} G {loss_g.item():.3f} "
                  f"class-mean gap {class_mean_gap(G, held_x, held_y, gen):.3f} (start {gap0:.3f})")


def train():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr-g", type=float, default=5e-4)
    ap.add_argument("--lr-d", type=float, default=1e-3)
    ap.add_argument("--d-per-g", type=int, default=1)
    ap.add_argument("--seed", type=int, default=21)
    main(ap.parse_args([]))


WATCH = ()
