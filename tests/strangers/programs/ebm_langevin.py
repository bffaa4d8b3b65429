"""Energy based model on two moons, persistent Langevin chains with 5% restarts, spectral regularisation of energies; deep energy in float32."""
import math, torch
from torch import nn

torch.manual_seed(7)

def moons(n):
    t = torch.rand(n) * math.pi
    side = torch.randint(0, 2, (n,))
    x = torch.stack([torch.cos(t) - 0.5, torch.sin(t) - 0.25], 1)
    x[side == 1] = -x[side == 1]
    return x + 0.05 * torch.randn(n, 2)

class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 1))
    def forward(self, x):
        return self.net(x).squeeze(-1) + 0.1 * x.square().sum(-1)

def langevin(model, x, steps=15, size=0.02):
    for p in model.parameters():
        p.requires_grad_(False)
    was = model.training
    model.eval()
    x = x.clone()
    for _ in range(steps):
        x.requires_grad_(True)
        grad, = torch.autograd.grad(model(x).sum(), x)
        with torch.no_grad():
            x = x - size * grad.clamp(-1, 1) + math.sqrt(2 * size) * 0.1 * torch.randn_like(x)
    for p in model.parameters():
        p.requires_grad_(True)
    model.train(was)
    return x.detach()

energy = Energy()
opt = torch.optim.Adam(energy.parameters(), 1e-3, betas=(0.0, 0.999))
sched = torch.optim.lr_scheduler.StepLR(opt, 100, 0.5)
buffer = torch.rand(1000, 2) * 4 - 2
for it in range(200):
    real = moons(128)
    idx = torch.randperm(len(buffer))[:128]
    start = buffer[idx]
    restart = torch.rand(128) < 0.05
    start[restart] = torch.rand(int(restart.sum()), 2) * 4 - 2
    fake = langevin(energy, start)
    buffer[idx] = fake
    er, ef = energy(real + 0.02 * torch.randn_like(real)), energy(fake)
    loss = er.mean() - ef.mean() + 0.1 * (er.square() + ef.square()).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(energy.parameters(), 0.5)
    opt.step(); sched.step()
    if it % 40 == 0:
        print(f"{it:4d} loss {loss.item():+.4f} E(real) {er.mean().item():+.3f} E(fake) {ef.mean().item():+.3f}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
