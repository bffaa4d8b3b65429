"""RWKV-like recurrence with per-channel decay in log space, for a copy/recall task. Plain torch, Lion optimizer written by hand."""
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                update = (state["m"] * b1 + p.grad * (1 - b1)).sign_()
                p.add_(update, alpha=-group["lr"])
                state["m"].mul_(b2).add_(p.grad, alpha=1 - b2)
        return loss


class TimeMix(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.h, self.k = heads, d // heads
        self.mix = nn.Parameter(torch.rand(3, d) * 0.5 + 0.25)
        self.r, self.kk, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.log_decay = nn.Parameter(torch.linspace(-3, 0, d))   # decay = exp(-exp(w))
        self.norm = nn.GroupNorm(heads, d)

    def forward(self, x):
        B, T, D = x.shape
        prev = F.pad(x, (0, 0, 1, -1))
        xr, xk, xv = (torch.lerp(prev, x, m) for m in self.mix)
        r, k, v = (f(y).view(B, T, self.h, self.k) for f, y in ((self.r, xr), (self.kk, xk), (self.v, xv)))
        k = k * self.k ** -0.5
        w = torch.exp(-torch.exp(self.log_decay)).view(self.h, self.k, 1)
        S = x.new_zeros(B, self.h, self.k, self.k)
        out = []
        for t in range(T):
            S = S * w + k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
            out.append(torch.einsum("bhk,bhkv->bhv", r[:, t], S))
        y = torch.stack(out, 1).reshape(B * T, D)
        return self.o(self.norm(y).view(B, T, D))


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.att = TimeMix(d, 4)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        x = x + self.att(self.ln1(x))
        return x + self.down(F.relu(self.up(self.ln2(x))).square())


class Net(nn.Module):
    def __init__(self, vocab, d=32, n=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(n))
        self.ln = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, tokens):
        x = self.emb(tokens)
        for b in self.blocks:
            x = b(x)
        return self.head(self.ln(x))


def batch(n, vocab, gen, half=6):
    """x1..xk SEP x1..xk: the second half is predictable."""
    a = torch.randint(1, vocab, (n, half), generator=gen)
    sep = torch.zeros(n, 1, dtype=torch.long)
    return torch.cat([a, sep, a], 1)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    args = ap.parse_args()
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    net = Net(12)
    opt = Lion(net.parameters(), lr=1e-3, weight_decay=0.01)
    for i in range(args.steps):
        seq = batch(64, 12, gen)
        logits = net(seq[:, :-1])
        copied = slice(6, None)                       # the loss counts only the half that can be known
        loss = F.cross_entropy(logits[:, copied].reshape(-1, 12), seq[:, 1:][:, copied].reshape(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 25 == 0:
            acc = (logits[:, copied].argmax(-1) == seq[:, 1:][:, copied]).float().mean()
            print(f"step {i} loss {loss.item():.3f} acc {acc:.3f}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
