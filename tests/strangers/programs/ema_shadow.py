"""Inpainting of 1-D height profiles with a U-Net; evaluation uses an exponential moving average of the weights.

fault average_without_a_copy: DK513 at here
"""
import torch
import torch.nn as nn


class EMA:
    def __init__(self, model, decay=0.99):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.named_parameters()}  #! average_without_a_copy: self.shadow = {k: v.detach() for k, v in model.named_parameters()}
        self.backup = {}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.named_parameters():
            self.shadow[k].mul_(self.decay).add_(v, alpha=1 - self.decay)

    @torch.no_grad()
    def apply(self, model):
        for k, v in model.named_parameters():
            self.backup[k] = v.detach().clone()
            v.copy_(self.shadow[k])

    @torch.no_grad()
    def restore(self, model):
        for k, v in model.named_parameters():
            v.copy_(self.backup[k])


def block(i, o):
    return nn.Sequential(nn.Conv1d(i, o, 5, padding=2), nn.GroupNorm(4, o), nn.SiLU())


class UNet1d(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.d1, self.d2, self.mid = block(2, c), block(c, 2 * c), block(2 * c, 2 * c)
        self.u2, self.u1 = block(4 * c, c), block(2 * c, c)
        self.out = nn.Conv1d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(nn.functional.avg_pool1d(a, 2))
        m = nn.functional.interpolate(self.mid(nn.functional.avg_pool1d(b, 2)), scale_factor=2)
        h = self.u2(torch.cat([m, b], 1))
        h = nn.functional.interpolate(h, scale_factor=2)
        return self.out(self.u1(torch.cat([h, a], 1)))


def profiles(n, g):
    t = torch.linspace(0, 1, 64)
    freq = 1 + 3 * torch.rand(n, 3, 1, generator=g)
    phase = 6.28 * torch.rand(n, 3, 1, generator=g)
    y = torch.sin(6.28 * freq * t + phase).sum(1, keepdim=True) / 2
    mask = torch.ones(n, 1, 64)
    for i in range(n):
        a = int(torch.randint(8, 44, (), generator=g))
        mask[i, :, a:a + 12] = 0
    return y, mask


def main():
    torch.manual_seed(6)
    g = torch.Generator().manual_seed(6)
    model = UNet1d()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    ema = EMA(model, 0.98)
    test_y, test_m = profiles(128, torch.Generator().manual_seed(7))

    def error(y, m):
        out = model(torch.cat([y * m, m], 1))
        return ((out - y) ** 2 * (1 - m)).sum() / (1 - m).sum()

    for step in range(1, 241):
        y, m = profiles(32, g)
        loss = error(y, m)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
        if step % 60 == 0:
            model.eval()
            with torch.no_grad():
                live = error(test_y, test_m).item()
                ema.apply(model)
                averaged = error(test_y, test_m).item()
                ema.restore(model)
            model.train()
            print(f"{step} train {loss.item():.4f} live {live:.4f} averaged {averaged:.4f}")


main()


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
