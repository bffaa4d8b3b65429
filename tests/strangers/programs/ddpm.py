"""Denoising diffusion on small images with an EMA copy, a schedule of betas as buffers, noise drawn in the loss module.

fault noise_from_numpy: DK701 at here
fault ema_replaces_model: DK102|DK101 at here|module:net.time
fault beta_not_buffer: DK003|DK005 at here|parameter:ab
"""
import copy
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(19)
rng = np.random.default_rng()

class Eps(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.time = nn.Embedding(50, c)
        self.a, self.b, self.c = nn.Conv2d(1, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, 1, 3, padding=1)
        self.gn = nn.GroupNorm(4, c)
    def forward(self, x, t):
        h = F.silu(self.a(x)) + self.time(t)[:, :, None, None]
        return self.c(F.silu(self.gn(self.b(h))))

class Diffusion(nn.Module):
    def __init__(self, net, steps=50):
        super().__init__()
        self.net, self.steps = net, steps
        beta = torch.linspace(1e-4, 0.1, steps)
        self.register_buffer("ab", torch.cumprod(1 - beta, 0))  #! beta_not_buffer: self.ab = torch.cumprod(1 - beta, 0)
    def forward(self, x0):
        t = torch.randint(0, self.steps, (len(x0),), device=x0.device)
        noise = torch.randn_like(x0)  #! noise_from_numpy: noise = torch.from_numpy(rng.standard_normal(tuple(x0.shape)).astype("float32")).to(x0.device)
        a = self.ab[t].view(-1, 1, 1, 1)
        return F.mse_loss(self.net(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)

diff = Diffusion(Eps())
opt = torch.optim.AdamW(diff.parameters(), lr=2e-3)
ema = copy.deepcopy(diff).eval().requires_grad_(False)
pass  #! ema_replaces_model: diff.net = copy.deepcopy(diff.net)

def batch():
    x = torch.zeros(8, 1, 8, 8)
    for i in range(8):
        r = int(torch.randint(0, 6, (1,))); x[i, 0, r:r + 3, 2:6] = 1
    return x * 2 - 1

def train():
    for _ in range(30):
        loss = diff(batch())
        opt.zero_grad(); loss.backward(); opt.step()
        with torch.no_grad():
            for e, p in zip(ema.parameters(), diff.parameters()):
                e.lerp_(p, 0.05)

CHECK = lambda: dict(model=diff, batch=batch(), loss_fn=lambda m, x: m(x), optimizer=opt)
WATCH = (diff, opt)
