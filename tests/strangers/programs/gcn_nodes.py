"""Node classification on one graph: dense adjacency, a training mask, full batch in each step; the same batch each time is by design."""
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(39)
N = 60
y = torch.arange(N) % 3
adj = ((y[:, None] == y[None]) & (torch.rand(N, N) < 0.3)).float(); adj = ((adj + adj.T + torch.eye(N)) > 0).float()
adj = adj / adj.sum(1, keepdim=True)
feats = torch.randn(N, 8) + F.one_hot(y, 8).float()
train_mask = torch.arange(N) < 30
class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 3)
    def forward(self, x, adj):
        h = F.dropout(F.relu(self.a(adj @ x)), 0.3, self.training)
        return self.b(adj @ h)
model = GCN(); opt = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=5e-4)
data = {"x": feats, "adj": adj, "y": y, "train_mask": train_mask}
def loss_fn(m, d): return F.cross_entropy(m(d["x"], d["adj"])[d["train_mask"]], d["y"][d["train_mask"]])
def train():
    best = 0
    for _ in range(40):
        model.train(); opt.zero_grad(); loss_fn(model, data).backward(); opt.step()
        model.eval()
        with torch.no_grad():
            p = model(feats, adj).argmax(1); best = max(best, (p == y)[~train_mask].float().mean().item())
CHECK = lambda: dict(model=model, batch=data, loss_fn=loss_fn, optimizer=opt)
WATCH = (model, opt)
