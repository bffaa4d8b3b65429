"""MAML on sine waves with torch.func.functional_call and create_graph inner steps; one meta-batch per outer step."""
import math, torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)


def tasks(n):
    for _ in range(n):
        amp, ph = torch.rand(1) * 4 + .5, torch.rand(1) * math.pi
        draw = lambda k: (lambda x: (x, amp * torch.sin(x + ph)))(torch.rand(k, 1) * 10 - 5)
        yield draw(10), draw(20)


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))


def train():
    net = Net()
    mse = nn.functional.mse_loss

    def adapt(params, support, steps, lr=.01, second_order=True):
        x, y = support
        for _ in range(steps):
            loss = mse(functional_call(net, params, (x,)), y)
            grads = torch.autograd.grad(loss, list(params.values()), create_graph=second_order)
            params = {k: p - lr * g for (k, p), g in zip(params.items(), grads)}
        return params

    def evaluate(n=40):
        tot = 0.
        for s, (xq, yq) in tasks(n):
            p = adapt({k: v.detach().clone().requires_grad_() for k, v in net.named_parameters()}, s, 5, second_order=False)
            with torch.no_grad():
                tot += mse(functional_call(net, p, (xq,)), yq).item()
        return tot / n

    meta = torch.optim.Adam(net.parameters(), lr=2e-3)
    print("before", evaluate())
    run = []
    for it in range(150):
        meta.zero_grad()
        losses = []
        for support, (xq, yq) in tasks(6):
            fast = adapt(dict(net.named_parameters()), support, 2)
            losses.append(mse(functional_call(net, fast, (xq,)), yq))
        outer = torch.stack(losses).mean()
        outer.backward()
        meta.step()
        run.append(outer.item())
        if it % 50 == 49:
            print(it, "meta loss", sum(run[-30:]) / 30)
    print("after", evaluate())


WATCH = ()
