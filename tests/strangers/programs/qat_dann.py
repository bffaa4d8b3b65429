"""Quantisation-aware training with custom autograd (STE fake quant, gradient reversal), observers as buffers, weight norm and spectral norm; domain-adversarial loss."""
import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm, spectral_norm
from torch.autograd import Function
from itertools import cycle
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(33)


class FakeQuant(Function):
    @staticmethod
    def forward(ctx, x, scale, lo, hi):
        q = torch.round(x / scale)
        ctx.save_for_backward((q >= lo) & (q <= hi))
        return q.clamp(lo, hi) * scale

    @staticmethod
    def backward(ctx, g):
        ok, = ctx.saved_tensors
        return g * ok, None, None, None


class GradReverse(Function):
    @staticmethod
    def forward(ctx, x, lam):
        ctx.lam = lam
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.lam, None


class QLinear(nn.Linear):
    def __init__(self, *a, bits=8):
        super().__init__(*a)
        self.qmax = 2 ** (bits - 1) - 1
        self.register_buffer("act_max", torch.tensor(1.))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.act_max.lerp_(x.abs().max(), .1)
        x = FakeQuant.apply(x, self.act_max / self.qmax, -self.qmax - 1, self.qmax)
        w = FakeQuant.apply(self.weight, self.weight.detach().abs().max() / self.qmax, -self.qmax, self.qmax)
        return F.linear(x, w, self.bias)


class DANN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(QLinear(10, 64), nn.ReLU(), QLinear(64, 32), nn.ReLU())
        self.classifier = weight_norm(nn.Linear(32, 4))
        self.domain = nn.Sequential(spectral_norm(nn.Linear(32, 32)), nn.LeakyReLU(.1), spectral_norm(nn.Linear(32, 1)))

    def forward(self, x, lam=0.):
        h = self.features(x)
        return self.classifier(h), self.domain(GradReverse.apply(h, lam)).squeeze(1)


C = torch.randn(4, 10) * 1.5


def domain(n, shift):
    y = torch.randint(0, 4, (n,))
    return C[y] + .6 * torch.randn(n, 10) + shift, y


def train():
    src, tgt = domain(1000, 0.), domain(1000, torch.linspace(-.8, .8, 10))
    src_loader = DataLoader(TensorDataset(*src), batch_size=40, shuffle=True)
    tgt_loader = DataLoader(TensorDataset(tgt[0]), batch_size=40, shuffle=True)
    model = DANN()
    opt = torch.optim.SGD(model.parameters(), lr=.05, momentum=.9)
    epochs, seen = 6, 0
    for epoch in range(epochs):
        model.train()
        sc = sd = 0.
        for (xs, ys), (xt,) in zip(src_loader, cycle(tgt_loader)):
            p = seen / (epochs * len(src_loader)); seen += 1
            lam = .3 * (2. / (1. + torch.exp(torch.tensor(-10. * p)).item()) - 1.)
            opt.zero_grad(set_to_none=False)
            out, dom = model(torch.cat([xs, xt]), lam)
            cls = F.cross_entropy(out[:len(xs)], ys)
            d = F.binary_cross_entropy_with_logits(dom, torch.cat([torch.zeros(len(xs)), torch.ones(len(xt))]))
            (cls + d).backward()
            opt.step()
            sc += cls.item() / len(src_loader); sd += d.item() / len(src_loader)
        model.eval()
        with torch.no_grad():
            acc = (model(tgt[0])[0].argmax(1) == tgt[1]).float().mean().item()
        print(f"epoch {epoch} cls {sc:.3f} dom {sd:.3f} target acc {acc:.3f}")


WATCH = ()
