"""Continual learning with EWC: Fisher by per-sample backward without a step, growing rehearsal memory, a new optimizer per task, EMA weights swapped in for evaluation with a fixed evaluation seed."""
import contextlib, torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(19)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(.1), nn.Linear(64, 64), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(64, 4) for _ in range(3))
    def forward(self, x, task):
        return self.heads[task](self.body(x))


class EMA:
    def __init__(self, model, d=.97):
        self.model, self.d, self.shadow = model, d, {k: v.detach().clone() for k, v in model.named_parameters()}
    def update(self):
        for k, v in self.model.named_parameters():
            self.shadow[k].mul_(self.d).add_(v.detach(), alpha=1 - self.d)
    @contextlib.contextmanager
    def applied(self):
        backup = {k: v.detach().clone() for k, v in self.model.named_parameters()}
        with torch.no_grad():
            for k, v in self.model.named_parameters(): v.copy_(self.shadow[k])
        try:
            yield self.model
        finally:
            with torch.no_grad():
                for k, v in self.model.named_parameters(): v.copy_(backup[k])


CENT = torch.randn(3, 4, 20)


def batch(task, n):
    y = torch.randint(0, 4, (n,))
    return CENT[task][y] + .8 * torch.randn(n, 20), y


def fisher(model, task, n=40):
    f = {k: torch.zeros_like(p) for k, p in model.named_parameters()}
    model.eval()
    x, _ = batch(task, n)
    for xi in x.split(1):
        model.zero_grad()
        lp = F.log_softmax(model(xi, task), 1)
        F.nll_loss(lp, torch.multinomial(lp.exp().detach(), 1).view(-1)).backward()
        for k, p in model.named_parameters():
            if p.grad is not None:
                f[k] += p.grad.square() / n
    model.zero_grad()
    model.train()
    return f


def evaluate(model, upto):
    with torch.random.fork_rng():
        torch.manual_seed(0)                              # the same evaluation data each time
        model.eval()
        with torch.no_grad():
            r = [round((model(x, t).argmax(1) == y).float().mean().item(), 3) for t in range(upto + 1) for x, y in [batch(t, 200)]]
        model.train()
    return r


def train():
    model, ema, memory, anchors = Net(), None, [], []
    ema = EMA(model)
    for task in range(3):
        seen = [*model.body.parameters(), *model.heads[task].parameters()]
        for h in range(task):
            seen += list(model.heads[h].parameters())
        opt = torch.optim.Adam(seen, lr=3e-3)
        first = None
        for it in range(70):
            x, y = batch(task, 48)
            loss = F.cross_entropy(model(x, task), y)
            for f, old in anchors:
                loss = loss + 5. * sum((f[k] * (p - old[k]).square()).sum() for k, p in model.named_parameters())
            grads = [torch.autograd.grad(loss, seen, allow_unused=True)]
            if memory:                                        # PCGrad: project the two gradients on each other
                mx, my, mt = memory[int(torch.randint(0, len(memory), ()))]
                grads.append(torch.autograd.grad(F.cross_entropy(model(mx, mt), my), seen, allow_unused=True))
            flat = [torch.cat([(g if g is not None else torch.zeros_like(p)).flatten() for g, p in zip(gs, seen)]) for gs in grads]
            if len(flat) == 2 and (dot := flat[0] @ flat[1]) < 0:
                flat = [flat[0] - dot / flat[1].square().sum() * flat[1], flat[1] - dot / flat[0].square().sum() * flat[0]]
            total = sum(flat)
            for p, g in zip(seen, total.split([p.numel() for p in seen])):
                p.grad = g.view_as(p)
            opt.step()
            ema.update()
            first = first or loss.item()
            if it % 10 == 0:
                memory.append((*batch(task, 32), task))
        anchors.append((fisher(model, task), {k: p.detach().clone() for k, p in model.named_parameters()}))
        with ema.applied() as m:
            print(f"task {task} loss {first:.3f} -> {loss.item():.3f} accuracy {evaluate(m, task)}")


WATCH = ()
