"""Quantisation-aware training of an MLP with a straight-through estimator, interrupted once and resumed from a full checkpoint.

fault round_blocks_grad: DK105|DK107|DK206 at "torch.optim.Adam("
fault optimizer_not_restored: DK511 at here|"torch.optim.Adam("
fault observer_at_eval: none
fault unsigned_range: none
"""
import os
import tempfile
import torch
from torch import nn
import torch.nn.functional as F


class FakeQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, lo, hi):
        q = (x / scale).round()
        ctx.save_for_backward((q >= lo) & (q <= hi))
        return q.clamp(lo, hi) * scale

    @staticmethod
    def backward(ctx, grad):
        (inside,) = ctx.saved_tensors
        return grad * inside, None, None, None


class QLinear(nn.Linear):
    """4-bit symmetric weights for each output row, 8-bit activations with a running absolute maximum."""

    def __init__(self, cin, cout):
        super().__init__(cin, cout)
        self.register_buffer("amax", torch.zeros(()))

    def forward(self, x):
        if self.training:  #! observer_at_eval: if True:
            with torch.no_grad():
                peak = x.abs().max()
                self.amax.copy_(torch.where(self.amax == 0, peak, 0.9 * self.amax + 0.1 * peak))
        x = FakeQuant.apply(x, self.amax.clone().clamp(min=1e-6) / 127, -127, 127)
        scale = self.weight.detach().abs().amax(1, keepdim=True).clamp(min=1e-8) / 7
        w = FakeQuant.apply(self.weight, scale, -7, 7)  #! round_blocks_grad: w = (self.weight / scale).round().clamp(-7, 7) * scale  #! unsigned_range: w = FakeQuant.apply(self.weight, scale, 0, 15)
        return F.linear(x, w, self.bias)


class Session:
    def __init__(self, folder):
        self.path = os.path.join(folder, "last.pt")
        self.gen = torch.Generator().manual_seed(40)
        self.net = nn.Sequential(QLinear(12, 48), nn.ReLU(), QLinear(48, 48), nn.ReLU(), QLinear(48, 4))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=5e-3)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, step_size=4, gamma=0.5)
        self.epoch, self.log = 0, []

    def save(self):
        state = {"net": self.net.state_dict(), "opt": self.opt.state_dict(), "sched": self.sched.state_dict(),
                 "gen": self.gen.get_state(), "epoch": self.epoch, "log": self.log}
        torch.save(state, self.path + ".tmp")
        os.replace(self.path + ".tmp", self.path)

    def load(self):
        state = torch.load(self.path, weights_only=True)
        self.net.load_state_dict(state["net"])
        self.opt.load_state_dict(state["opt"])  #! optimizer_not_restored: pass
        self.sched.load_state_dict(state["sched"])
        self.gen.set_state(state["gen"])
        self.epoch, self.log = state["epoch"], state["log"]

    def run(self, until, data, held):
        while self.epoch < until:
            self.net.train()
            for idx in torch.randperm(len(data[0]), generator=self.gen).split(64):
                loss = F.cross_entropy(self.net(data[0][idx]), data[1][idx])
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.log.append(loss.item())
            self.sched.step()
            self.net.eval()
            with torch.no_grad():
                accuracy = (self.net(held[0]).argmax(1) == held[1]).float().mean().item()
            self.epoch += 1
            self.save()
        return accuracy


def blobs(n, gen, centres):
    y = torch.randint(0, 4, (n,), generator=gen)
    return centres[y] * torch.where(torch.rand(n, 1, generator=gen) < 0.5, -1.0, 1.0) + 0.8 * torch.randn(n, 12, generator=gen), y


def train():
    torch.manual_seed(40)
    gen = torch.Generator().manual_seed(12)
    centres = torch.randn(4, 12, generator=gen)
    data, held = blobs(512, gen, centres), blobs(256, gen, centres)
    with tempfile.TemporaryDirectory() as folder:
        first = Session(folder)
        mid = first.run(5, data, held)
        second = Session(folder)
        second.load()
        final = second.run(12, data, held)
    return second.log, mid, final, second.opt.param_groups[0]["lr"]


WATCH = ()
