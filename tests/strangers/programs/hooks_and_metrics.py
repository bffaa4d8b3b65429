"""A regression network whose hook collects features of the last batch and whose metrics are numbers.

fault hook_keeps_features: DK602|DK601 at here
fault metrics_keep_predictions: DK601 at here
fault data_attribute: DK105|DK119 at here
fault squeeze_missing: DK002 at "mse_loss"
fault tabular_scale: DK319 at input:x|here
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(23)

class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 1)
    def forward(self, x):
        f = self.features(x)  #! data_attribute: f = self.features(x).data
        return self.head(f).squeeze(-1)  #! squeeze_missing: return self.head(f)

model = Regressor()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
store = []

def hook(module, args, output):
    store[:] = [output.detach()]  #! hook_keeps_features: store.append(output)
model.features.register_forward_hook(hook)
w = torch.randn(12) / 3

def batch(n=64):
    x = torch.randn(n, 12)  #! tabular_scale: x = torch.randn(n, 12) * torch.tensor([1.0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 20000.0, 35000.0])
    return {"x": x, "y": (x / x.std(0)) @ w}

def loss_fn(m, b): return F.mse_loss(m(b["x"]), b["y"])

def train():
    preds = []
    for _ in range(50):
        b = batch()
        out = model(b["x"])
        loss = F.mse_loss(out, b["y"])
        opt.zero_grad(); loss.backward(); opt.step()
        preds.append(out.detach().mean())  #! metrics_keep_predictions: preds.append(out)

CHECK = lambda: dict(model=model, batch=batch(), loss_fn=loss_fn, optimizer=opt)
WATCH = (model, opt)
