"""A byte-level encoder-only model that restores swapped neighbours in short codes (SDPA, RMSNorm, SwiGLU).

fault reshape_for_heads: DK324 at here
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.g = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.g


class SelfAttention(nn.Module):
    def __init__(self, d, n_head):
        super().__init__()
        self.n_head = n_head
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.proj = nn.Linear(d, d, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  #! reshape_for_heads: q = q.reshape(B, self.n_head, T, C // self.n_head)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  #! reshape_for_heads: k = k.reshape(B, self.n_head, T, C // self.n_head)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  #! reshape_for_heads: v = v.reshape(B, self.n_head, T, C // self.n_head)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, d, n_head):
        super().__init__()
        self.a, self.b = RMSNorm(d), RMSNorm(d)
        self.att = SelfAttention(d, n_head)
        self.w1, self.w2, self.w3 = nn.Linear(d, 2 * d, False), nn.Linear(d, 2 * d, False), nn.Linear(2 * d, d, False)

    def forward(self, x):
        x = x + self.att(self.a(x))
        h = self.b(x)
        return x + self.w3(F.silu(self.w1(h)) * self.w2(h))


class Restorer(nn.Module):
    def __init__(self, vocab=24, length=12, d=64, n_head=4, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(length, d)
        self.blocks = nn.ModuleList(Block(d, n_head) for _ in range(depth))
        self.norm, self.out = RMSNorm(d), nn.Linear(d, vocab, bias=False)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.05)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[:ids.size(1)]
        for b in self.blocks:
            x = b(x)
        return self.out(self.norm(x))


def codes(n, g):
    """Ascending codes in which two neighbours were exchanged."""
    clean = torch.rand(n, 24, generator=g).argsort(-1)[:, :12].sort(-1).values
    dirty = clean.clone()
    i = torch.randint(0, 11, (n,), generator=g)
    r = torch.arange(n)
    dirty[r, i], dirty[r, i + 1] = clean[r, i + 1], clean[r, i]
    return dirty, clean


def train(steps=250, batch=48):
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    model = Restorer()
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=2e-3,
                            betas=(0.9, 0.98))
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-3, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        dirty, clean = codes(batch, g)
        logits = model(dirty)
        loss = F.cross_entropy(logits.flatten(0, 1), clean.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 50 == 49:
            print(step + 1, f"{loss.item():.4f}", f"whole codes right {(logits.argmax(-1) == clean).all(-1).float().mean():.2f}")


train()


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
