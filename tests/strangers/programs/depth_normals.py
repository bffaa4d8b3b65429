"""Dense two-task network: depth and surface normals of a bumpy plane from a shaded image.

fault number_of_a_term: DK105|DK121 at here
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Hills:
    def __init__(self, size=24, seed=0):
        self.size, self.g = size, torch.Generator().manual_seed(seed)
        self.y, self.x = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")

    def batch(self, n):
        z = torch.zeros(n, self.size, self.size)
        for _ in range(3):
            c = torch.rand(n, 2, 1, 1, generator=self.g) * 1.6 - 0.8
            a = torch.rand(n, 1, 1, generator=self.g) * 0.5
            w = 0.1 + 0.2 * torch.rand(n, 1, 1, generator=self.g)
            z = z + a * torch.exp(-((self.x - c[:, 0]) ** 2 + (self.y - c[:, 1]) ** 2) / w)
        zy, zx = torch.gradient(z, dim=(1, 2))
        scale = self.size / 2
        normal = F.normalize(torch.stack([-zx * scale, -zy * scale, torch.ones_like(z)], 1), dim=1)
        light = F.normalize(torch.tensor([0.5, 0.3, 0.8]), dim=0).view(1, 3, 1, 1)
        shade = (normal * light).sum(1, keepdim=True).clamp(min=0)
        image = torch.cat([shade, z[:, None] * 0.5 + 0.3], 1)
        image = image + 0.03 * torch.randn(image.shape, generator=self.g)
        return (image - 0.6) / 0.3, z[:, None], normal


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        layer = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.SiLU())
        self.shared = nn.Sequential(layer(2, width), layer(width, width), layer(width, width))
        self.depth_head = nn.Conv2d(width, 1, 3, padding=1)
        self.normal_head = nn.Sequential(layer(width, width), nn.Conv2d(width, 3, 1))

    def forward(self, image):
        h = self.shared(image)
        return {"depth": self.depth_head(h), "normal": F.normalize(self.normal_head(h), dim=1)}


def compute_losses(out, depth, normal):
    return {"depth": F.l1_loss(out["depth"], depth), "normal": (1 - (out["normal"] * normal).sum(1)).mean()}


WEIGHTS = {"depth": 1.0, "normal": 0.5}

torch.manual_seed(0)
data, net = Hills(), Net()
optim = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.LinearLR(optim, 1.0, 0.1, total_iters=120)
history = {"depth": [], "normal": []}
for it in range(120):
    image, depth, normal = data.batch(12)
    losses = compute_losses(net(image), depth, normal)
    total = losses["depth"] * WEIGHTS["depth"] + losses["normal"] * WEIGHTS["normal"]  #! number_of_a_term: total = losses["depth"] * WEIGHTS["depth"] + losses["normal"].item() * WEIGHTS["normal"]
    optim.zero_grad()
    total.backward()
    optim.step()
    sched.step()
    for k, v in losses.items():
        history[k].append(v.item())
    if (it + 1) % 30 == 0:
        print(it + 1, {k: round(sum(v[-30:]) / 30, 4) for k, v in history.items()})


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
