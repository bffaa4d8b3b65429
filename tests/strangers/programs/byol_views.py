"""BYOL: predictor on the online network, averaged target inside the module, symmetric loss, optimizer with the online part alone."""
import copy, torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(40)
class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
        self.target = copy.deepcopy(self.online)
        for p in self.target.parameters(): p.requires_grad = False
        self.predictor = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
    @torch.no_grad()
    def follow(self, tau=0.99):
        for a, b in zip(self.target.parameters(), self.online.parameters()): a.data = tau * a.data + (1 - tau) * b.data
    def forward(self, a, b):
        pa, pb = self.predictor(self.online(a)), self.predictor(self.online(b))
        with torch.no_grad(): ta, tb = self.target(a), self.target(b)
        return 4 - 2 * F.cosine_similarity(pa, tb).mean() - 2 * F.cosine_similarity(pb, ta).mean()
model = BYOL()
opt = torch.optim.SGD([*model.online.parameters(), *model.predictor.parameters()], lr=0.05, momentum=0.9)
def views(n=32):
    x = torch.randn(n, 10); return x + 0.1 * torch.randn(n, 10), x + 0.1 * torch.randn(n, 10)
def train():
    for _ in range(30):
        loss = model(*views()); opt.zero_grad(); loss.backward(); opt.step(); model.follow()
CHECK = lambda: dict(model=model, batch=views(), loss_fn=lambda m, b: m(*b), optimizer=opt)
WATCH = (model, opt)
