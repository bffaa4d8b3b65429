"""Half precision by hand with a GradScaler on the CPU; the RMS norm computes in float32.

fault overflow_in_norm: DK201|DK203 at here|"torch.rsqrt("
fault scale_never_fits: DK208 at "GradScaler("
fault no_unscale: DK504 at "clip_grad_norm_"
"""
import torch
from torch import nn

torch.manual_seed(13)

class RMS(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.ones(d))
    def forward(self, x):
        f = x.float()  #! overflow_in_norm: f = x
        return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.w.type_as(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(16, 64)
        self.norm = RMS(64)
        self.mid = nn.Linear(64, 64)
        self.out = nn.Linear(64, 1)
    def forward(self, x):
        h = self.inp(x) * 400.0
        h = self.norm(h)
        return self.out(torch.relu(self.mid(h)))

model = Net()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 10)  #! scale_never_fits: scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 60, backoff_factor=0.9)
W = torch.randn(16, 1) / 4

def batch():
    x = torch.randn(32, 16)
    return x, x @ W

def loss_fn(m, b):
    with torch.autocast("cpu", dtype=torch.float16):
        y = m(b[0])
    return nn.functional.mse_loss(y.float(), b[1])

def train():
    for _ in range(40):
        opt.zero_grad()
        scaler.scale(loss_fn(model, batch())).backward()
        scaler.unscale_(opt)  #! no_unscale: pass
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()

CHECK = lambda: dict(model=model, batch=batch(), loss_fn=loss_fn, optimizer=opt)
WATCH = (model, opt)
