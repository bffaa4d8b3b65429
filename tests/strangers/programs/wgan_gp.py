"""A Wasserstein critic with gradient penalty, five critic steps per generator step, in a class."""
import torch
from torch import nn
torch.manual_seed(35)
class WGAN:
    def __init__(self):
        self.g = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)); self.d = nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 1))
        self.og = torch.optim.Adam(self.g.parameters(), 1e-4, betas=(0.0, 0.9)); self.od = torch.optim.Adam(self.d.parameters(), 1e-4, betas=(0.0, 0.9))
    def penalty(self, a, b):
        e = torch.rand(len(a), 1); x = (e * a + (1 - e) * b).requires_grad_(True)
        grad, = torch.autograd.grad(self.d(x).sum(), x, create_graph=True)
        return ((grad.norm(2, 1) - 1) ** 2).mean()
    def step(self, i):
        real = torch.randn(32, 2) * torch.tensor([1.0, 0.2]); fake = self.g(torch.randn(32, 4)).detach()
        ld = self.d(fake).mean() - self.d(real).mean() + 10 * self.penalty(real, fake)
        self.od.zero_grad(); ld.backward(); self.od.step()
        if i % 5 == 4:
            lg = -self.d(self.g(torch.randn(32, 4))).mean()
            self.og.zero_grad(); lg.backward(); self.og.step()
w = WGAN()
def train():
    for i in range(50): w.step(i)
WATCH = (nn.ModuleList([w.g, w.d]), [w.og, w.od])
