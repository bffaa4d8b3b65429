"""Cox partial likelihood with a Kolmogorov-Arnold network (B-spline edges); Adam, then L-BFGS refinement on the full risk set; concordance."""
import torch, torch.nn as nn
torch.manual_seed(0)
class KANLayer(nn.Module):
    def __init__(self, i, o, grid=6, k=3):
        super().__init__()
        h = 2.0 / grid; self.k = k
        self.register_buffer("knots", torch.arange(-k, grid + k + 1) * h - 1.0)
        self.coef = nn.Parameter(torch.randn(o, i, grid + k) * 0.1 / i ** 0.5); self.base = nn.Parameter(torch.randn(o, i) / i ** 0.5)
    def basis(self, x):
        x, t = x[..., None], self.knots
        b = ((x >= t[:-1]) & (x < t[1:])).to(x.dtype)
        for k in range(1, self.k + 1):
            b = (x - t[:-k - 1]) / (t[k:-1] - t[:-k - 1]) * b[..., :-1] + (t[k + 1:] - x) / (t[k + 1:] - t[1:-k]) * b[..., 1:]
        return b
    def forward(self, x):
        return torch.einsum("nik,oik->no", self.basis(x.clamp(-0.999, 0.999)), self.coef) + nn.functional.silu(x) @ self.base.T
net = nn.Sequential(KANLayer(5, 4), nn.Tanh(), KANLayer(4, 1))
n = 900; X = torch.rand(n, 5) * 2 - 1
risk = 2 * torch.sin(3 * X[:, 0]) + X[:, 1] ** 2 * 2 - X[:, 2]
T = torch.distributions.Exponential(torch.exp(risk)).sample(); C = torch.distributions.Exponential(torch.full((n,), 0.4)).sample()
event, time = (T <= C).float(), torch.minimum(T, C)
tr, te = slice(0, 700), slice(700, n)
def neg_pl(h, t, e):
    order = t.argsort(descending=True); h, e = h[order], e[order]
    return -((h - torch.logcumsumexp(h, 0)) * e).sum() / e.sum()
def cindex(h, t, e):
    pair = (t[:, None] < t[None]) & (e[:, None] > 0)
    return ((h[:, None] > h[None]) & pair).sum().item() / pair.sum().item()
opt = torch.optim.Adam(net.parameters(), 1e-2)
for s in range(150):
    i = torch.randperm(700)[:200]
    loss = neg_pl(net(X[i]).squeeze(1), time[i], event[i]) + 1e-3 * sum(p.square().sum() for p in net.parameters())
    opt.zero_grad(); loss.backward(); opt.step()
    if s % 50 == 0: print("adam", s, round(loss.item(), 4))
lb = torch.optim.LBFGS(net.parameters(), max_iter=5, line_search_fn="strong_wolfe")
for s in range(12):
    def closure():
        lb.zero_grad(); l = neg_pl(net(X[tr]).squeeze(1), time[tr], event[tr]) + 1e-3 * sum(p.square().sum() for p in net.parameters()); l.backward(); return l
    l = lb.step(closure)
print("lbfgs", round(l.item(), 4))
with torch.no_grad(): print("c-index", round(cindex(net(X[te]).squeeze(1), time[te], event[te]), 3))


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
