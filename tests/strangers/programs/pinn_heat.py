"""Physics-informed network for the 1-D heat equation u_t = a u_xx on random collocation points, Adam first and L-BFGS to finish.

fault residual_detached: DK121|DK105
fault lbfgs_no_zero: DK501
fault ic_broadcast: DK002
fault history_graph: DK601
"""
import math

import torch
from torch import nn

ALPHA = 0.1
N_COLLOC, N_IC, N_BC = 256, 64, 64
ADAM_STEPS, LBFGS_STEPS = 100, 4


def exact(x, t):
    decay = lambda k: torch.exp(-ALPHA * (k * math.pi) ** 2 * t)
    return decay(1) * torch.sin(math.pi * x) + 0.5 * decay(2) * torch.sin(2 * math.pi * x)


class AdaptiveTanh(nn.Module):
    """tanh with a trainable slope (Jagtap et al.)."""

    def __init__(self, n=5.0):
        super().__init__()
        self.n = n
        self.a = nn.Parameter(torch.tensor(1.0 / n))

    def forward(self, x):
        return torch.tanh(self.n * self.a * x)


class HeatNet(nn.Module):
    def __init__(self, width=24, depth=3):
        super().__init__()
        dims = [2] + [width] * depth
        layers = []
        for i, o in zip(dims[:-1], dims[1:]):
            lin = nn.Linear(i, o)
            nn.init.xavier_normal_(lin.weight)
            nn.init.zeros_(lin.bias)
            layers += [lin, AdaptiveTanh()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x, t):
        # both inputs live on [0, 1]; bring them to [-1, 1]
        return self.net(torch.cat([2 * x - 1, 2 * t - 1], dim=1))


def grad(out, inp, **kw):
    return torch.autograd.grad(out, inp, torch.ones_like(out), **kw)[0]


def pde_residual(net, x, t):
    x, t = x.clone().requires_grad_(True), t.clone().requires_grad_(True)
    u = net(x, t)
    u_t = grad(u, t, create_graph=True)
    u_x = grad(u, x, create_graph=True)
    u_xx = grad(u_x, x, create_graph=True)  #! residual_detached: u_xx = grad(u_x, x, retain_graph=True)
    return u_t - ALPHA * u_xx


def sample_points(gen):
    rand = lambda n: torch.rand(n, 1, generator=gen)
    x_ic = rand(N_IC)
    return {
        "col": (rand(N_COLLOC), rand(N_COLLOC)),
        "ic": (x_ic, torch.zeros(N_IC, 1)),
        "u0": exact(x_ic, torch.zeros(N_IC, 1)),
        "bc": (torch.randint(2, (N_BC, 1), generator=gen).float(), rand(N_BC)),
    }


def total_loss(net, pts):
    l_pde = pde_residual(net, *pts["col"]).pow(2).mean()
    u0 = pts["u0"]  #! ic_broadcast: u0 = pts["u0"].flatten()
    l_ic = (net(*pts["ic"]) - u0).pow(2).mean()
    l_bc = net(*pts["bc"]).pow(2).mean()
    return l_pde + 10 * l_ic + 10 * l_bc


@torch.no_grad()
def relative_l2(net):
    g = torch.linspace(0, 1, 41)
    x, t = (m.reshape(-1, 1) for m in torch.meshgrid(g, g, indexing="ij"))
    u = exact(x, t)
    return ((net(x, t) - u).norm() / u.norm()).item()


def train():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(99)
    net = HeatNet()
    history = []
    err0 = relative_l2(net)

    # phase 1: Adam with fresh collocation points every step
    adam = torch.optim.Adam(net.parameters(), lr=5e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(adam, gamma=0.99)
    for step in range(ADAM_STEPS):
        adam.zero_grad()
        loss = total_loss(net, sample_points(gen))
        loss.backward()
        adam.step()
        sched.step()
        history.append(loss.item())  #! history_graph: history.append(loss)

    # phase 2: L-BFGS on a fixed set (it needs a deterministic objective)
    fixed = sample_points(gen)
    lbfgs = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=10, history_size=20, line_search_fn="strong_wolfe")

    def closure():
        lbfgs.zero_grad()  #! lbfgs_no_zero: pass
        loss = total_loss(net, fixed)
        loss.backward()
        return loss

    for _ in range(LBFGS_STEPS):
        history.append(lbfgs.step(closure).item())  #! history_graph: history.append(lbfgs.step(closure))
    final = float(total_loss(net, fixed).detach())
    print(f"loss {float(history[0]):.4f} -> adam {float(history[ADAM_STEPS - 1]):.4f} -> lbfgs {final:.5f}")
    print(f"relative L2 error {err0:.3f} -> {relative_l2(net):.4f}")


WATCH = ()
