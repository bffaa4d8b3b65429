"""A run in two parts: the second loads model, optimizer and schedule from a checkpoint in memory.

fault optimizer_not_restored: DK511|DK704 at "torch.optim.Adam(model2"
fault strict_false_nothing_matches: DK118|DK114 at "load_state_dict(state"
fault scheduler_not_restored: none
"""
import io
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(21)

def build():
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))

X = torch.randn(256, 10); Y = X[:, :3].argmax(1)

def epoch(model, optimizer, scheduler):
    for idx in torch.randperm(256).split(16):
        loss = F.cross_entropy(model(X[idx]), Y[idx])
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    scheduler.step()

def train():
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for _ in range(2):
        epoch(model, optimizer, scheduler)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, file)  #! strict_false_nothing_matches: torch.save({"model": {"module." + k: v for k, v in model.state_dict().items()}, "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file)
    model2 = build()
    state = saved["model"]
    model2.load_state_dict(state, strict=False)
    optimizer2 = torch.optim.Adam(model2.parameters(), lr=1e-2)
    optimizer2.load_state_dict(saved["optimizer"])  #! optimizer_not_restored: pass
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer2, 1, 0.5)
    scheduler.load_state_dict(saved["scheduler"])  #! scheduler_not_restored: pass
    for _ in range(2):
        epoch(model2, optimizer2, scheduler)
WATCH = ()
