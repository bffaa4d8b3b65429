"""Two towers with in-batch negatives and a learned temperature clamped after the step."""
import math
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(31)

class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.img = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.GELU(), nn.Flatten(), nn.Linear(128, 16))
        self.txt = nn.EmbeddingBag(40, 16, mode="mean")
        self.proj = nn.Linear(16, 16)
        self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
    def forward(self, image, ids):
        a = F.normalize(self.img(image), dim=-1); b = F.normalize(self.proj(self.txt(ids)), dim=-1)
        return self.scale.exp() * a @ b.T

def clip_loss(logits):
    t = torch.arange(logits.shape[0], device=logits.device)
    return (F.cross_entropy(logits, t) + F.cross_entropy(logits.T, t)) / 2

model = TwoTower()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-6)
def batch(n=16):
    ids = torch.randint(0, 40, (n, 6)); x = torch.randn(n, 3, 16, 16) + (ids.float().mean(1).view(n, 1, 1, 1) - 20) / 5
    return {"image": x, "ids": ids}
loss_fn = lambda m, b: clip_loss(m(b["image"], b["ids"]))
def train():
    for _ in range(30):
        opt.zero_grad(); loss_fn(model, batch()).backward(); opt.step()
        with torch.no_grad():
            model.scale.clamp_(0, math.log(100))
CHECK = lambda: dict(model=model, batch=batch(), loss_fn=loss_fn, optimizer=opt)
WATCH = (model, opt)
