"""Momentum contrast: the key encoder inside the module feeds a queue buffer, the loss is inside of forward.

"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(5)

def encoder():
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16))

class MoCo(nn.Module):
    def __init__(self, K=64, m=0.99, t=0.2):
        super().__init__()
        self.q, self.k = encoder(), encoder()
        self.k.load_state_dict(self.q.state_dict())
        self.k.requires_grad_(False)
        self.m, self.t = m, t
        self.register_buffer("queue", F.normalize(torch.randn(K, 16), dim=1))
        self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))
    @torch.no_grad()
    def _update(self):
        for a, b in zip(self.k.parameters(), self.q.parameters()):
            a.mul_(self.m).add_(b, alpha=1 - self.m)
    @torch.no_grad()
    def _enqueue(self, keys):
        p = int(self.ptr)
        self.queue[p:p + len(keys)] = keys
        self.ptr[0] = (p + len(keys)) % len(self.queue)
    def forward(self, a, b):
        q = F.normalize(self.q(a), dim=1)
        with torch.no_grad():
            self._update()
            k = F.normalize(self.k(b), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().T], 1) / self.t
        self._enqueue(k)
        labels = torch.zeros(len(q), dtype=torch.long, device=q.device)
        return F.cross_entropy(logits, labels)

model = MoCo()
opt = torch.optim.SGD(model.q.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
base = torch.randn(128, 12)

def views():
    i = torch.randint(0, 128, (16,))
    return base[i] + 0.1 * torch.randn(16, 12), base[i] + 0.1 * torch.randn(16, 12)

def train():
    for _ in range(40):
        loss = model(*views())
        opt.zero_grad(); loss.backward(); opt.step()

CHECK = lambda: dict(model=model, batch=views(), loss_fn=lambda m, b: m(*b), optimizer=opt)
WATCH = (model, opt)
