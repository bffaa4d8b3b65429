"""Anchor-free centre-point detector on tiny images: focal heatmap loss plus L1 size regression at the object cells.

fault size_everywhere: none
fault xy_swapped: none
fault double_sigmoid: DK308|DK316
fault clip_before_backward: DK504
"""
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

S, STRIDE = 32, 4
G = S // STRIDE


def make_scene(rng):
    img = torch.randn(1, S, S, generator=rng) * 0.3
    boxes = []
    for _ in range(int(torch.randint(1, 4, (1,), generator=rng))):
        w, h = (int(v) for v in torch.randint(4, 11, (2,), generator=rng))
        x = int(torch.randint(0, S - w, (1,), generator=rng))
        y = int(torch.randint(0, S - h, (1,), generator=rng))
        img[:, y:y + h, x:x + w] += 1.5
        boxes.append((x + w / 2, y + h / 2, w, h))
    return img, torch.tensor(boxes)


def collate(items):
    """Stack the images and keep the boxes as one (n, 5) table whose first column is the image index."""
    images = torch.stack([img for img, _ in items])
    table = torch.cat([F.pad(b, (1, 0), value=float(i)) for i, (_, b) in enumerate(items)])
    return images, table


def encode(table, n):
    heat, size, mask = torch.zeros(n, G, G), torch.zeros(n, 2, G, G), torch.zeros(n, 1, G, G)
    for i, cx, cy, w, h in table.tolist():
        i, gx, gy = int(i), int(cx // STRIDE), int(cy // STRIDE)
        for v in range(max(0, gy - 1), min(G, gy + 2)):
            for u in range(max(0, gx - 1), min(G, gx + 2)):
                d2 = (u - gx) ** 2 + (v - gy) ** 2
                heat[i, v, u] = max(heat[i, v, u].item(), math.exp(-d2 / 0.7))
        size[i, :, gy, gx] = torch.tensor([math.log(w), math.log(h)])  #! xy_swapped: size[i, :, gx, gy] = torch.tensor([math.log(w), math.log(h)])
        mask[i, 0, gy, gx] = 1.0
    return heat, size, mask


def focal(logits, target, alpha=2.0, beta=4.0):
    """Penalty-reduced focal loss on logits, normalised by the number of objects."""
    p = torch.sigmoid(logits)
    pos = target.eq(1).float()
    pos_term = pos * (1 - p) ** alpha * F.logsigmoid(logits)
    neg_term = (1 - pos) * (1 - target) ** beta * p ** alpha * F.logsigmoid(-logits)
    return -(pos_term + neg_term).sum() / pos.sum().clamp(min=1)


class Detector(nn.Module):
    def __init__(self, c=16, prior=0.05):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, c, 3, 2, 1), nn.BatchNorm2d(c), nn.ReLU(inplace=True),
            nn.Conv2d(c, c, 3, 2, 1), nn.BatchNorm2d(c), nn.ReLU(inplace=True),
            nn.Conv2d(c, c, 3, 1, 1), nn.BatchNorm2d(c), nn.ReLU(inplace=True),
            nn.Conv2d(c, c, 3, 1, 1), nn.BatchNorm2d(c), nn.ReLU(inplace=True))
        self.heat, self.size = nn.Conv2d(c, 1, 1), nn.Conv2d(c, 2, 1)
        nn.init.constant_(self.heat.bias, -math.log((1 - prior) / prior))

    def forward(self, x):
        f = self.backbone(x)
        heat = self.heat(f).squeeze(1)  #! double_sigmoid: heat = self.heat(f).squeeze(1).sigmoid()
        return heat, self.size(f)


def train():
    random.seed(0)
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(1)
    scenes = [make_scene(rng) for _ in range(192)]
    loader = DataLoader(scenes, batch_size=16, shuffle=True, collate_fn=collate)
    net = Detector()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    log = []
    for epoch in range(7):
        for images, table in loader:
            heat_t, size_t, mask = encode(table, len(images))
            heat, size = net(images)
            l_heat = focal(heat, heat_t)
            err = F.l1_loss(size, size_t, reduction="none")
            l_size = (err * mask).sum() / mask.sum().clamp(min=1)  #! size_everywhere: l_size = err.sum() / mask.sum().clamp(min=1)
            loss = l_heat + 0.5 * l_size
            opt.zero_grad()  #! clip_before_backward: opt.zero_grad(); nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)  #! clip_before_backward: pass
            opt.step()
            log.append((loss.item(), l_heat.item(), l_size.item()))
    return log


WATCH = ()
