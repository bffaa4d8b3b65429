"""Second-order MAML for sinusoid regression, functional style, with learned per-parameter inner rates (Meta-SGD).

fault inner_from_init: none
fault query_is_support: none
fault rates_detached: DK105|DK107
fault vmap_in_dims: none
"""
import math
import torch
from torch import nn
from torch.func import functional_call, grad, vmap


net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))


def mse(params, x, y):
    return ((functional_call(net, params, (x,)) - y) ** 2).mean()


def adapt(params, rates, x, y, steps=2):
    fast = params
    for _ in range(steps):
        g = grad(mse)(fast, x, y)
        fast = {k: fast[k] - rates[k] * g[k] for k in fast}  #! inner_from_init: fast = {k: params[k] - rates[k] * g[k] for k in fast}
    return fast


def task_loss(params, rates, xs, ys, xq, yq):
    fast = adapt(params, rates, xs, ys)
    return mse(fast, xq, yq)  #! query_is_support: return mse(fast, xs, ys)


def tasks(n, gen, k=10):
    amp = 0.5 + 2.0 * torch.rand(n, 1, 1, generator=gen)
    phase = math.pi * torch.rand(n, 1, 1, generator=gen)
    x = 10 * torch.rand(n, 2 * k, 1, generator=gen) - 5
    y = amp * torch.sin(x + phase)
    return x[:, :k], y[:, :k], x[:, k:], y[:, k:]


def mean_loss(params, rates, batch):
    return vmap(task_loss, in_dims=(None, None, 0, 0, 0, 0))(params, rates, *batch).mean()  #! vmap_in_dims: return task_loss(params, rates, *batch)


def train():
    torch.manual_seed(111)
    gen = torch.Generator().manual_seed(112)
    for layer in net:
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()
    params = {k: p.detach().clone().requires_grad_() for k, p in net.named_parameters()}
    log_rates = {k: torch.full_like(p, math.log(0.02)).requires_grad_() for k, p in params.items()}
    opt = torch.optim.Adam([
        {"params": list(params.values()), "lr": 3e-3},
        {"params": list(log_rates.values()), "lr": 1e-2},
    ])
    held = tasks(100, torch.Generator().manual_seed(113))
    curve, val = [], []
    for it in range(150):
        rates = {k: r.exp() for k, r in log_rates.items()}  #! rates_detached: rates = {k: r.detach().exp() for k, r in log_rates.items()}
        loss = mean_loss(params, rates, tasks(24, gen))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(list(params.values()) + list(log_rates.values()), 5.0)
        opt.step()
        curve.append(loss.item())
        if it % 50 == 49:
            with torch.no_grad():
                val.append(mean_loss(params, {k: r.exp() for k, r in log_rates.items()}, held).item())
    train.score = val
    return curve


WATCH = ()
