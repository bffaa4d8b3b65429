"""Decoder with RoPE + sliding-window + document masks over packed rows, multi-token-prediction head, Muon for matrices and AdamW for the rest,
gradient checkpointing, byte text."""
import math, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

def newton_schulz(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    if g.size(0) > g.size(1): x = x.T
    for _ in range(steps):
        A = x @ x.T
        x = a * x + (b * A + c * A @ A) @ x
    return x.T if g.size(0) > g.size(1) else x

class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95): super().__init__(params, dict(lr=lr, momentum=momentum))
    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None: continue
                buf = self.state[p].setdefault("buf", torch.zeros_like(p))
                buf.lerp_(p.grad, 1 - g["momentum"])
                p.add_(newton_schulz(p.grad.lerp(buf, g["momentum"])), alpha=-g["lr"] * max(1, p.size(0) / p.size(1)) ** 0.5)

def rope(x, pos):
    d = x.size(-1) // 2
    ang = pos[:, None, :, None] * (10000 ** (-torch.arange(d) / d))
    c, s = ang.cos(), ang.sin()
    a, b = x[..., :d], x[..., d:]
    return torch.cat([a * c - b * s, a * s + b * c], -1)

class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h; self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up, self.down = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)
    def forward(self, x, mask, pos):
        B, T, D = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, self.h, D // self.h).permute(2, 0, 3, 1, 4)
        q, k = F.rms_norm(q, (q.size(-1),)), F.rms_norm(k, (k.size(-1),))
        y = F.scaled_dot_product_attention(rope(q, pos), rope(k, pos), v, attn_mask=mask)
        x = x + self.o(y.transpose(1, 2).reshape(B, T, D))
        z = self.n2(x)
        return x + self.down(F.silu(self.gate(z)) * self.up(z))

class LM(nn.Module):
    def __init__(self, vocab=256, d=64, h=4, n=3, window=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, d); nn.init.normal_(self.emb.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(d, h) for _ in range(n)); self.norm = nn.RMSNorm(d)
        self.mtp = Block(d, h); self.merge = nn.Linear(2 * d, d, bias=False); self.window = window
    def mask(self, doc):
        i = torch.arange(doc.size(1))
        band = (i[:, None] >= i) & (i[:, None] - i < self.window)
        return ((doc[:, :, None] == doc[:, None, :]) & band)[:, None]
    def forward(self, tok, doc, pos):
        m, x = self.mask(doc), self.emb(tok)
        for b in self.blocks:
            x = checkpoint(b, x, m, pos, use_reentrant=False) if self.training else b(x, m, pos)
        x = self.norm(x); first = F.linear(x, self.emb.weight)
        nxt = torch.roll(self.emb(tok), -1, 1)          # only positions whose next token is in the row are counted
        y = self.norm(self.mtp(self.merge(torch.cat([x, nxt], -1)), m, pos))
        return first, F.linear(y, self.emb.weight)

text = [bytes(f"the {a} cat {v} the {o}.\n", "ascii") for a in ("red", "old", "shy", "wet") for v in ("sees", "eats", "wants") for o in ("fish", "milk", "bird", "moon")]
torch.manual_seed(0); gen = torch.Generator().manual_seed(2)
def packed(n, T=96):
    rows = []
    for _ in range(n):
        t, d, p = [], [], []
        k = 0
        while len(t) < T + 1:
            s = text[int(torch.randint(len(text), (1,), generator=gen))]; t += s; d += [k] * len(s); p += range(len(s)); k += 1
        rows.append((t[:T + 1], d[:T + 1], p[:T + 1]))
    return (torch.tensor(c) for c in zip(*rows))

model = LM()
matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "emb" not in n]
others = [p for n, p in model.named_parameters() if p.ndim != 2 or "emb" in n]
opts = [Muon(matrices, lr=0.02), torch.optim.AdamW(others, lr=3e-3, betas=(0.8, 0.95), weight_decay=0.0)]
for step in range(80):
    t, d, p = packed(8)
    x, y = t[:, :-1], t[:, 1:].clone()
    y[d[:, 1:] != d[:, :-1]] = -100                       # never predict across documents
    y2 = torch.full_like(y, -100); same = d[:, 2:] == d[:, :-2]
    y2[:, :-1] = torch.where(same, t[:, 2:], torch.tensor(-100))
    a, b = model(x, d[:, :-1], p[:, :-1].float())
    l1 = F.cross_entropy(a.flatten(0, 1), y.flatten(), ignore_index=-100); l2 = F.cross_entropy(b.flatten(0, 1), y2.flatten(), ignore_index=-100)
    loss = l1 + 0.3 * l2
    loss.backward()
    for o in opts:
        for g in o.param_groups: g.setdefault("base", g["lr"]); g["lr"] = g["base"] * min(1, (step + 1) / 5, (80 - step) / 20)
        o.step()
    model.zero_grad(set_to_none=True)
    if step % 16 == 0: print(step, f"next {l1.item():.3f} second {l2.item():.3f}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
