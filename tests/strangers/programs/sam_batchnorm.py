"""SAM optimizer (davda54) around SGD, BatchNorm running statistics frozen in the second pass, label smoothing, StepLR."""
import torch
from torch import nn
from torch.utils.data import TensorDataset, DataLoader, random_split

torch.manual_seed(8)


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=.05, adaptive=False, **kw):
        super().__init__(params, dict(rho=rho, adaptive=adaptive, **kw))
        self.base_optimizer = base_optimizer(self.param_groups, **kw)
        self.param_groups = self.base_optimizer.param_groups
        self.defaults.update(self.base_optimizer.defaults)

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        norm = self._grad_norm()
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                if p.grad is None: continue
                self.state[p]["old_p"] = p.data.clone()
                p.add_((torch.pow(p, 2) if group["adaptive"] else 1.) * p.grad * scale.to(p))
        if zero_grad: self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None: continue
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad: self.zero_grad()

    @torch.no_grad()
    def step(self, closure=None):
        closure = torch.enable_grad()(closure)
        self.first_step(zero_grad=True)
        closure()
        self.second_step()

    def _grad_norm(self):
        return torch.norm(torch.stack([((torch.abs(p) if g["adaptive"] else 1.) * p.grad).norm(p=2) for g in self.param_groups for p in g["params"] if p.grad is not None]), p=2)


def disable_running_stats(model):
    def _d(m):
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.backup_momentum, m.momentum = m.momentum, 0
    model.apply(_d)


def enable_running_stats(model):
    def _e(m):
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and hasattr(m, "backup_momentum"):
            m.momentum = m.backup_momentum
    model.apply(_e)


def train():
    proto = torch.randn(6, 1, 10, 10)
    y = torch.randint(0, 6, (1200,))
    x = proto[y] + .9 * torch.randn(1200, 1, 10, 10)
    train_set, test_set = random_split(TensorDataset(x, y), [1000, 200])
    train_loader = DataLoader(train_set, 50, shuffle=True)
    test_loader = DataLoader(test_set, 100)
    model = nn.Sequential(nn.Conv2d(1, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(16, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(128, 6))
    opt = SAM(model.parameters(), torch.optim.SGD, rho=.1, adaptive=True, lr=.05, momentum=.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.StepLR(opt.base_optimizer, 2, .5)
    crit = nn.CrossEntropyLoss(label_smoothing=.1)
    for epoch in range(4):
        model.train()
        tot = 0.
        for inputs, targets in train_loader:
            enable_running_stats(model)
            loss = crit(model(inputs), targets)
            loss.backward()
            opt.first_step(zero_grad=True)
            disable_running_stats(model)
            crit(model(inputs), targets).backward()
            opt.second_step(zero_grad=True)
            tot += loss.item()
        sched.step()
        model.eval()
        with torch.no_grad():
            acc = sum((model(a).argmax(1) == b).sum().item() for a, b in test_loader) / len(test_set)
        print(epoch, tot / len(train_loader), acc)


WATCH = ()
