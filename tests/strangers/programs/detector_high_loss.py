"""A dense detector: focal loss and box loss summed over all cells and divided by the number of positives; the first loss is high by design.

fault targets_255: DK316|DK319 at here
fault linear_stack: DK116 at module:cls|module:tower
"""
import math
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(15)

class Dense(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.tower = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())  #! linear_stack: self.tower = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, 2, 1))
        self.cls = nn.Conv2d(16, classes, 3, padding=1)
        self.box = nn.Conv2d(16, 4, 3, padding=1)
        nn.init.constant_(self.cls.bias, -math.log(99))
    def forward(self, images):
        f = self.tower(images)
        return {"cls": self.cls(f), "box": self.box(f)}

def focal(logits, target, gamma=2.0, alpha=0.25):
    ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    p = logits.sigmoid(); pt = p * target + (1 - p) * (1 - target)
    return ((alpha * target + (1 - alpha) * (1 - target)) * (1 - pt) ** gamma * ce).sum()

def loss_fn(model, batch):
    out = model(batch["image"])
    positive = batch["heat"].amax(1) > 0
    n = positive.sum().clamp(min=1)
    box = (out["box"] - batch["box"]).abs().sum(1)[positive].sum()
    return (focal(out["cls"], batch["heat"]) + box) / n

def batch(n=6):
    image = torch.randn(n, 3, 32, 32) * 0.5
    heat = torch.zeros(n, 5, 8, 8); box = torch.zeros(n, 4, 8, 8)
    for i in range(n):
        for c in range(3):
            y, x, k = [int(v) for v in torch.randint(0, 8, (3,))]
            k = k % 5
            image[i, :, y * 4:y * 4 + 4, x * 4:x * 4 + 4] += k - 2.0
            heat[i, k, y, x] = 1.0  #! targets_255: heat[i, k, y, x] = 255.0
            box[i, :, y, x] = torch.tensor([y, x, 4.0, 4.0])
    return {"image": image, "heat": heat, "box": box}

model = Dense()
optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9, nesterov=True)

def train():
    for _ in range(40):
        optimizer.zero_grad()
        loss_fn(model, batch()).backward()
        optimizer.step()

CHECK = lambda: dict(model=model, batch=batch(), loss_fn=loss_fn, optimizer=optimizer)
WATCH = (model, optimizer)
