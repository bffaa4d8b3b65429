"""DDPM on 2-D swiss roll with EMA weights, classifier-free guidance and a closure-style train step."""
import copy, math, torch
from torch import nn

torch.manual_seed(1)
T = 100
betas = torch.linspace(1e-4, .06, T)
abar = torch.cumprod(1 - betas, 0)


def sample_data(n):
    lab = torch.randint(0, 2, (n,))
    t = 1.5 * math.pi * (1 + 2 * torch.rand(n))
    x = torch.stack([t * t.cos(), t * t.sin()], 1) / 8 + .03 * torch.randn(n, 2)
    x[lab == 1] *= -.6
    return x, lab


class TimeEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("freq", torch.exp(-math.log(1000.) * torch.arange(dim // 2) / (dim // 2)), persistent=False)

    def forward(self, t):
        a = t[:, None].float() * self.freq
        return torch.cat([a.sin(), a.cos()], -1)


class Block(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.n, self.a, self.b, self.c = nn.LayerNorm(w), nn.Linear(w, w), nn.Linear(w, w), nn.Linear(w, 2 * w)
        nn.init.zeros_(self.b.weight)
        nn.init.zeros_(self.b.bias)

    def forward(self, h, emb):
        s, sh = self.c(emb).chunk(2, -1)
        y = self.n(h) * (1 + s) + sh
        return h + self.b(nn.functional.silu(self.a(y)))


class Eps(nn.Module):
    def __init__(self, w=96):
        super().__init__()
        self.t = nn.Sequential(TimeEmb(32), nn.Linear(32, w), nn.SiLU())
        self.y = nn.Embedding(3, w)          # class 2 = unconditional
        self.inp = nn.Linear(2, w)
        self.blocks = nn.ModuleList(Block(w) for _ in range(3))
        self.out = nn.Linear(w, 2)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t, y):
        e, h = self.t(t) + self.y(y), self.inp(x)
        for b in self.blocks:
            h = b(h, e)
        return self.out(h)


def make_trainer(model, ema, lr=2e-3, decay=.99):
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.)
    def step(x, y):
        t = torch.randint(0, T, (len(x),))
        noise = torch.randn_like(x)
        a = abar[t][:, None]
        y = torch.where(torch.rand(len(y)) < .1, torch.full_like(y, 2), y)
        pred = model(a.sqrt() * x + (1 - a).sqrt() * noise, t, y)
        loss = (pred - noise).square().mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.)
        opt.step()
        with torch.no_grad():
            for pe, p in zip(ema.parameters(), model.parameters()):
                pe.lerp_(p, 1 - decay)
        return loss.item()
    return step


@torch.no_grad()
def generate(model, n, w=1.5):
    x = torch.randn(n, 2)
    y = torch.arange(n) % 2
    for i in reversed(range(T)):
        t = torch.full((n,), i)
        e = (1 + w) * model(x, t, y) - w * model(x, t, torch.full_like(y, 2))
        x = (x - betas[i] / (1 - abar[i]).sqrt() * e) / (1 - betas[i]).sqrt()
        if i:
            x += betas[i].sqrt() * torch.randn_like(x)
    return x


def train():
    model = Eps()
    ema = copy.deepcopy(model).requires_grad_(False).eval()
    step = make_trainer(model, ema)
    losses = [step(*sample_data(256)) for _ in range(350)]
    print("loss", sum(losses[:20]) / 20, "->", sum(losses[-50:]) / 50, "std", generate(ema, 256).std().item())


WATCH = ()
