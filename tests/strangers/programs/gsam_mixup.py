"""ASAM-like two-pass steps, cutmix+mixup soft labels, progressive resizing 8->12->16, noisy labels with symmetric CE; backbone frozen for last stage, then linear probe refit."""
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); np.random.seed(0)
def images(n):
    y = torch.randint(0, 4, (n,)); x = 0.4 * torch.randn(n, 1, 16, 16); g = torch.linspace(0, 6.28 * 2, 16)
    for i in range(n):
        k = int(y[i]); w = (g[None, :], g[:, None], g[None, :] + g[:, None], g[None, :] - g[:, None])[k]; x[i, 0] += torch.sin(w + 6.28 * torch.rand(()))
    return x, y
class Res(nn.Module):
    def __init__(self, i, o, s): super().__init__(); self.a, self.b, self.sk = nn.Conv2d(i, o, 3, s, 1), nn.Conv2d(o, o, 3, 1, 1), nn.Conv2d(i, o, 1, s); self.n1, self.n2 = nn.GroupNorm(4, o), nn.GroupNorm(4, o)
    def forward(self, x): return F.relu(self.n2(self.b(F.relu(self.n1(self.a(x))))) + self.sk(x))
class Net(nn.Module):
    def __init__(self): super().__init__(); self.body = nn.Sequential(Res(1, 16, 1), Res(16, 32, 2)); self.head = nn.Linear(32, 4)
    def forward(self, x): return self.head(self.body(x).mean((2, 3)))
class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.5, eta=0.01, **kw):
        super().__init__(params, dict(rho=rho, eta=eta, **kw)); self.base = base(self.param_groups, **kw); self.param_groups = self.base.param_groups
    @torch.no_grad()
    def ascend(self):
        ps = [p for g in self.param_groups for p in g["params"] if p.grad is not None]; r, e = self.param_groups[0]["rho"], self.param_groups[0]["eta"]
        n = torch.stack([((p.abs() + e) * p.grad).norm() for p in ps]).norm() + 1e-12
        for p in ps: self.state[p]["old"] = p.clone(); p.add_((p.abs() + e) ** 2 * p.grad * r / n)
    @torch.no_grad()
    def step(self, closure):
        with torch.enable_grad(): loss = closure()
        self.ascend(); self.zero_grad()
        with torch.enable_grad(): closure()
        for g in self.param_groups:
            for p in g["params"]:
                if "old" in self.state[p]: p.copy_(self.state[p].pop("old"))
        self.base.step(); self.zero_grad(); return loss
def soft(logits, t): lp = logits.log_softmax(1); p = lp.exp(); return -(t * lp).sum(1).mean() + 0.1 * -(p * t.clamp(min=1e-3).log()).sum(1).mean()
X, y = images(800); Xt, yt = images(200); noisy = torch.where(torch.rand(800) < 0.1, torch.randint(0, 4, (800,)), y)
net = Net(); opt = SAM(net.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=1e-4)
for ep, size in enumerate([8, 8, 12, 12, 16, 16]):
    net.train()
    for idx in torch.randperm(800).split(40):
        x, t = F.interpolate(X[idx], size=(size, size), mode="bilinear", antialias=True), F.one_hot(noisy[idx], 4).float(); perm = torch.randperm(len(idx)); lam = float(np.random.beta(0.4, 0.4))
        if np.random.rand() < 0.5: x = lam * x + (1 - lam) * x[perm]
        else:
            c = int(size * (1 - lam) ** 0.5); i, j = np.random.randint(0, size - c + 1, 2); x = x.clone(); x[:, :, i:i + c, j:j + c] = x[perm][:, :, i:i + c, j:j + c]; lam = 1 - c * c / size ** 2
        t = lam * t + (1 - lam) * t[perm]
        def closure(): l = soft(net(x), t); l.backward(); return l
        loss = opt.step(closure)
    net.eval()
    with torch.no_grad(): print(ep, size, round(loss.item(), 3), "acc", round((net(Xt).argmax(1) == yt).float().mean().item(), 3))
net.body.requires_grad_(False); probe = torch.optim.Adam(net.head.parameters(), 1e-2)
with torch.no_grad(): feats = net.body(X).mean((2, 3))
for s in range(60):
    i = torch.randint(0, 800, (100,)); loss = F.cross_entropy(net.head(feats[i]), noisy[i], label_smoothing=0.1); probe.zero_grad(); loss.backward(); probe.step()
with torch.no_grad(): print("probe acc", round((net(Xt).argmax(1) == yt).float().mean().item(), 3))


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
