"""Autocast in bfloat16 with a GradScaler; gradients are unscaled before they are clipped.

fault clipped_scaled: DK504 at "clip_grad_norm_("
"""
import torch
import torch.nn as nn

torch.manual_seed(0)
device = "cpu"


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        return self.head(self.body(x))


def loader(n_batches, bs=32):
    w = torch.linspace(-1, 1, 16)
    for _ in range(n_batches):
        x = torch.randn(bs, 16)
        yield x, torch.sin(x @ w).unsqueeze(1) * 2


def train():
    model = Regressor().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(device)
    criterion = nn.MSELoss()

    for epoch in range(6):
        model.train()
        total = 0.0
        for x, y in loader(50):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, dtype=torch.bfloat16):
                pred = model(x)
                loss = criterion(pred.float(), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)  #! clipped_scaled: pass
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / 50:.4f}")


WATCH = ()
