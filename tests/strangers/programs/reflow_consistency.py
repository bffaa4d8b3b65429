"""Rectified flow (logit-normal times, class guidance dropout, EMA by swa_utils) -> reflow pairs -> one-step consistency student. All 2-D."""
import copy, torch, torch.nn as nn, torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
torch.manual_seed(0)
def data(n):
    y = torch.randint(0, 3, (n,)); a = torch.rand(n) * 2 + y * 2.1
    return torch.stack([a.cos(), a.sin()], 1) * (1 + 0.3 * y[:, None]) + 0.03 * torch.randn(n, 2), y
class Field(nn.Module):
    def __init__(self, w=96):
        super().__init__(); self.y = nn.Embedding(4, 16)
        self.net = nn.Sequential(nn.Linear(2 + 16 + 8, w), nn.SiLU(), nn.Linear(w, w), nn.SiLU(), nn.Linear(w, w), nn.SiLU(), nn.Linear(w, 2)); nn.init.zeros_(self.net[-1].weight); nn.init.zeros_(self.net[-1].bias)
    def forward(self, x, t, y):
        f = t[:, None] * 2.0 ** torch.arange(4) * 3.14159 / 2
        return self.net(torch.cat([x, self.y(y), f.sin(), f.cos()], 1))
def euler(m, z, y, n=20, guidance=1.5):
    with torch.no_grad():
        for i in range(n):
            t = torch.full((len(z),), i / n); u = m(z, t, y); v0 = m(z, t, torch.full_like(y, 3)); z = z + (v0 + guidance * (u - v0)) / n
    return z
flow = Field(); ema = AveragedModel(flow, multi_avg_fn=get_ema_multi_avg_fn(0.98))
opt = torch.optim.Adam(flow.parameters(), 2e-3)
for s in range(200):
    x, y = data(256); z = torch.randn_like(x); t = torch.sigmoid(torch.randn(256)); xt = (1 - t)[:, None] * z + t[:, None] * x
    y = torch.where(torch.rand(256) < 0.15, 3, y)
    loss = F.mse_loss(flow(xt, t, y), x - z); opt.zero_grad(); loss.backward(); opt.step(); ema.update_parameters(flow)
    if s % 50 == 0: print("flow", s, round(loss.item(), 4))
ema.eval()
Z = torch.randn(2048, 2); Y = torch.randint(0, 3, (2048,)); X = euler(ema, Z, Y)
student = copy.deepcopy(ema.module); opt = torch.optim.Adam(student.parameters(), 1e-3)
target = copy.deepcopy(student).requires_grad_(False)
def jump(m, x, t, y): return x + (1 - t)[:, None] * m(x, t, y)
for s in range(200):
    i = torch.randint(0, 2048, (256,)); t = torch.rand(256) * 0.95; dt = torch.minimum(torch.full_like(t, 0.05), 1 - t)
    a, b = Z[i], X[i]; xt = (1 - t)[:, None] * a + t[:, None] * b; x2 = xt + dt[:, None] * (b - a)
    with torch.no_grad(): goal = torch.where((t + dt >= 0.999)[:, None], b, jump(target, x2, t + dt, Y[i]))
    d = jump(student, xt, t, Y[i]) - goal
    loss = ((d.square().sum(1) + 1e-4).sqrt() - 1e-2).mean() + 0.5 * F.mse_loss(jump(student, a, torch.zeros(256), Y[i]), b)
    opt.zero_grad(set_to_none=True); loss.backward(); opt.step()
    with torch.no_grad():
        for p, q in zip(student.parameters(), target.parameters()): q.lerp_(p, 0.05)
    if s % 50 == 0: print("student", s, round(loss.item(), 4))
with torch.no_grad(): print("one-step error", round((jump(student, Z[:500], torch.zeros(500), Y[:500]) - X[:500]).norm(dim=1).mean().item(), 4))


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
