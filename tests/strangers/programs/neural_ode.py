"""Neural ODE of a driven damped oscillator, integrated by a hand-written Euler solver with checkpointed steps.

fault state_detached: DK105
fault clock_stopped: none
fault time_axis_first: none
fault plateau_max: none
"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

T_POINTS, SUB, DT = 12, 2, 0.25
N = 12


def true_field(t, y):
    pos, vel = y[..., :1], y[..., 1:]
    return torch.cat([vel, -1.5 * pos - 0.2 * vel + 0.9 * torch.cos(1.7 * t)], -1)


def rk4(field, y, steps, dt):
    out, t = [y], torch.zeros(())
    for _ in range(steps - 1):
        for _ in range(5):
            h = dt / 5
            k1 = field(t, y)
            k2 = field(t + h / 2, y + h / 2 * k1)
            k3 = field(t + h / 2, y + h / 2 * k2)
            k4 = field(t + h, y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            t = t + h
        out.append(y)
    return torch.stack(out, dim=1)


class Field(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        nn.init.normal_(self.net[-1].weight, std=0.01)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, t, y):
        clock = torch.stack([t, torch.sin(1.7 * t), torch.cos(1.7 * t)]).expand(*y.shape[:-1], 3)
        return self.net(torch.cat([y, clock], -1))


class EulerSolver(nn.Module):
    """Fixed-step Euler; each observation interval is recomputed in the backward pass to save memory."""

    def __init__(self, field):
        super().__init__()
        self.field = field

    def interval(self, t, y):
        h = DT / SUB
        for _ in range(SUB):
            y = y + h * self.field(t, y)
            t = t + h
        return y

    def forward(self, y0):
        y, t, states = y0, torch.zeros(()), [y0]
        for _ in range(T_POINTS - 1):
            if self.training:
                y = checkpoint(self.interval, t, y, use_reentrant=False)  #! state_detached: y = checkpoint(self.interval, t, y.detach(), use_reentrant=False)
            else:
                y = self.interval(t, y)
            t = t + DT  #! clock_stopped: pass
            states.append(y)
        return torch.stack(states, dim=1)  #! time_axis_first: return torch.stack(states, dim=0)


def train():
    torch.manual_seed(8)
    gen = torch.Generator().manual_seed(3)
    with torch.no_grad():
        start = 1.5 * torch.randn(5 * N, 2, generator=gen)
        paths = rk4(true_field, start, T_POINTS, DT)
        test = rk4(true_field, 1.5 * torch.randn(N, 2, generator=gen), T_POINTS, DT)
    solver = EulerSolver(Field())
    opt = torch.optim.Adam(solver.parameters(), lr=1e-2)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode="min", factor=0.5, patience=3, min_lr=1e-4)  #! plateau_max: sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode="max", factor=0.5, patience=3, min_lr=1e-4)
    losses, scores = [], []
    for epoch in range(14):
        solver.train()
        for idx in torch.randperm(len(paths), generator=gen).split(N):
            batch = paths[idx] + 0.02 * torch.randn(len(idx), T_POINTS, 2, generator=gen)
            loss = (solver(batch[:, 0]) - batch).square().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(solver.parameters(), 1.0)
            opt.step()
            losses.append(loss.item())
        solver.eval()
        with torch.no_grad():
            scores.append((solver(test[:, 0]) - test).square().mean().item())
        sched.step(scores[-1])
    return losses, scores, opt.param_groups[0]["lr"]


WATCH = ()
