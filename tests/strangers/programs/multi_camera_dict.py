"""A policy over several cameras: images of all cameras flattened into one batch, dict output with losses by name, state standardised by running statistics."""
import torch
from torch import nn
torch.manual_seed(45)
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.cams = ("wrist", "front")
        self.cnn = nn.Sequential(nn.Conv2d(3, 8, 5, 2), nn.GroupNorm(2, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.state_bn = nn.BatchNorm1d(5, affine=False)
        self.head = nn.Sequential(nn.Linear(2 * 32 + 5, 48), nn.ReLU(), nn.Linear(48, 4))
    def forward(self, batch):
        imgs = torch.stack([batch[f"image.{c}"] for c in self.cams], 1)
        f = self.cnn(imgs.flatten(0, 1)).unflatten(0, imgs.shape[:2]).flatten(1)
        p = self.head(torch.cat([f, self.state_bn(batch["state"])], 1))
        grip = nn.functional.binary_cross_entropy_with_logits(p[:, 3], batch["gripper"])
        move = nn.functional.l1_loss(p[:, :3], batch["delta"])
        return {"loss": move + 0.1 * grip, "move": move.detach(), "gripper": grip.detach()}
net = Policy(); opt = torch.optim.AdamW(net.parameters(), 1e-3)
def batch(n=8):
    s = torch.randn(n, 5) * 20 + 7; d = (s[:, :3] - 7) / 20
    im = lambda: torch.rand(n, 3, 20, 20) * 2 - 1
    return {"image.wrist": im() + d[:, :1, None, None].clamp(-1, 1) * 0.2, "image.front": im(), "state": s, "delta": d, "gripper": (d[:, 0] > 0).float()}
def train():
    for _ in range(30):
        out = net(batch()); opt.zero_grad(); out["loss"].backward(); opt.step()
CHECK = lambda: dict(model=net, batch=batch(), loss_fn=lambda m, b: m(b)["loss"], optimizer=opt)
WATCH = (net, opt)
