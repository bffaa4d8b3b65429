"""A classifier of time series with nn.TransformerEncoder in (time, batch, features) order and a learned class token.

fault batch_mixed: DK305 at module:encoder|module:encoder.layers.0.self_attn|here
fault mask_polarity: DK303|DK315 at here|input:valid
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(20)

class Series(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.proj = nn.Linear(5, d)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(torch.randn(33, 1, d) * 0.02)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0), 2)
        self.head = nn.Linear(d, 3)
    def forward(self, x, valid):
        h = self.proj(x).transpose(0, 1)  #! batch_mixed: h = self.proj(x)
        pass  #! batch_mixed: return self.head(self.encoder(h)[:, 0])
        h = torch.cat([self.cls.expand(1, h.shape[1], -1), h]) + self.pos[: h.shape[0] + 1]
        pad = torch.cat([torch.zeros(len(valid), 1, dtype=torch.bool, device=valid.device), ~valid], 1)  #! mask_polarity: pad = torch.cat([torch.zeros(len(valid), 1, dtype=torch.bool, device=valid.device), valid], 1)
        return self.head(self.encoder(h, src_key_padding_mask=pad)[0])

def make(n=12, T=20):
    y = torch.randint(0, 3, (n,))
    length = torch.randint(8, T + 1, (n,)); length[0] = T
    valid = torch.arange(T)[None] < length[:, None]
    x = (torch.randn(n, T, 5) + y.view(n, 1, 1)) * valid[..., None]
    return {"x": x, "valid": valid, "y": y}

model = Series()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_fn = lambda m, b: F.cross_entropy(m(b["x"], b["valid"]), b["y"])

def train():
    for _ in range(30):
        loss = loss_fn(model, make())
        opt.zero_grad(); loss.backward(); opt.step()

CHECK = lambda: dict(model=model, batch=make(), loss_fn=loss_fn, optimizer=opt)
WATCH = (model, opt)
