"""Deep ensemble trained with torch.func (vmap + stack_module_state) as flat leaf tensors, conditioned by a hypernetwork; heteroscedastic Gaussian NLL."""
import copy, torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap, grad_and_value

torch.manual_seed(14)
x = torch.linspace(-3, 3, 256)[:, None]
x = x[torch.randperm(256)]
y = torch.sin(2 * x) + (.05 + .15 * x.abs()) * torch.randn_like(x)
M = 5


def build():
    return nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))


def train():
    models = [build() for _ in range(M)]
    params, buffers = stack_module_state(models)
    skeleton = copy.deepcopy(models[0]).to("meta")

    def nll(p, b, xb, yb):
        mu, s = functional_call(skeleton, (p, b), (xb,)).chunk(2, -1)
        var = nn.functional.softplus(s) + 1e-3
        return .5 * (var.log() + (mu - yb) ** 2 / var).mean()

    step_fn = vmap(grad_and_value(nll), in_dims=(0, 0, 0, 0))
    opt = torch.optim.Adam(params.values(), lr=5e-3)
    hist = []
    for it in range(300):
        idx = torch.randint(0, 256, (M, 48))                       # a bootstrap batch of its own for each member
        grads, losses = step_fn({k: p.detach() for k, p in params.items()}, buffers, x[idx], y[idx])
        for k, p in params.items():
            p.grad = grads[k]
        opt.step()
        hist.append(losses.mean().item())
    print("ensemble nll", hist[0], "->", sum(hist[-30:]) / 30)

    class HyperNet(nn.Module):
        """writes the weights of a small regressor from a task code; task = frequency"""
        def __init__(self, h=16):
            super().__init__()
            self.h = h
            self.code = nn.Sequential(nn.Linear(1, 64), nn.SiLU(), nn.Linear(64, 3 * h + 1))
            nn.init.normal_(self.code[-1].weight, std=.05)
            with torch.no_grad():
                self.code[-1].bias.copy_(torch.cat([torch.randn(2 * h), torch.randn(h) / h ** .5, torch.zeros(1)]))

        def forward(self, task, x):
            w = self.code(task)
            w1, b1, w2, b2 = w.split([self.h, self.h, self.h, 1], -1)
            hid = torch.tanh(x[..., None] * w1[:, None] + b1[:, None])
            return torch.einsum("bnh,bh->bn", hid, w2) + b2

    hyper = HyperNet()
    opt2 = torch.optim.RMSprop(hyper.parameters(), lr=2e-3)
    hist = []
    for it in range(300):
        f = torch.rand(32, 1) * 1.5 + .5
        xs = torch.rand(32, 20) * 4 - 2
        loss = (hyper(f, xs) - torch.sin(f * xs)).pow(2).mean()
        opt2.zero_grad()
        loss.backward()
        opt2.step()
        hist.append(loss.item())
    print("hyper mse", hist[0], "->", sum(hist[-30:]) / 30)


WATCH = ()
