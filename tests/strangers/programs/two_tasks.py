"""Two tasks in turns with a head each in a ModuleDict; the batch at hand needs one of them. A uncertainty-weighted loss module owns parameters.

fault loss_module_not_trained: DK101 at "torch.optim.AdamW("
fault huge_term: DK122 at "weight_decay = "
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(7)

class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 32), nn.Tanh())
        self.heads = nn.ModuleDict({"depth": nn.Linear(32, 1), "kind": nn.Linear(32, 5)})
    def forward(self, x, task):
        return self.heads[task](self.trunk(x))

class Weighting(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.log_var = nn.ParameterDict({t: nn.Parameter(torch.zeros(())) for t in tasks})
    def forward(self, task, loss):
        return loss * torch.exp(-self.log_var[task]) + 0.5 * self.log_var[task]

net = MultiTask()
weighting = Weighting(["depth", "kind"])
optimizer = torch.optim.AdamW([*net.parameters(), *weighting.parameters()], lr=2e-3)  #! loss_module_not_trained: optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
X = torch.randn(200, 10)
DEPTH = X[:, :2].sum(1)
KIND = X[:, :5].argmax(1)

def loss_fn(model, batch):
    out = model(batch["x"], batch["task"])
    if batch["task"] == "depth":
        raw = F.smooth_l1_loss(out.squeeze(-1), batch["y"])
    else:
        raw = F.cross_entropy(out, batch["y"])
    weight_decay = sum(p.pow(2).sum() for p in model.trunk.parameters())
    return weighting(batch["task"], raw) + 1e-5 * weight_decay  #! huge_term: return weighting(batch["task"], raw) + 1e5 * weight_decay

def make(task):
    i = torch.randint(0, 200, (24,))
    return {"x": X[i], "task": task, "y": (DEPTH if task == "depth" else KIND)[i]}

def train():
    for step in range(50):
        loss = loss_fn(net, make("depth" if step % 2 else "kind"))
        optimizer.zero_grad(); loss.backward(); optimizer.step()

CHECK = lambda: dict(model=net, batch=make("depth"), loss_fn=loss_fn, optimizer=optimizer)
WATCH = (net, optimizer)
