"""uint8 thermal

fault unsigned_difference: none
"""
# %% [markdown]
# Person counting in 8-bit thermal frames
# %%
import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(8)
torch.manual_seed(8)

# %% frames: background at about 90, people 20 to 60 grey levels warmer, up to three of them
def frames(n):
    yy, xx = np.mgrid[0:24, 0:24]
    out, counts = np.empty((n, 24, 24), np.uint8), rng.integers(0, 4, n)
    for i in range(n):
        f = 90 + 15 * np.sin(xx / 9 + rng.uniform(0, 6)) + rng.normal(0, 5, (24, 24))
        for _ in range(counts[i]):
            a, b = rng.uniform(3, 21, 2)
            f = f + rng.uniform(50, 90) * np.exp(-((xx - a) ** 2 + (yy - b) ** 2) / 5)
        out[i] = np.clip(f, 0, 255)
    return out, counts

train_x, train_y = frames(1200)
test_x, test_y = frames(300)
background = np.uint8(np.median(train_x))
print("background level", background, train_x.dtype)

# %% subtract the background
def preprocess(f):
    diff = f.astype(np.int16) - background  #! unsigned_difference: diff = f - background
    return torch.from_numpy(diff.astype(np.float32) / 50.0)[:, None]

X, T = preprocess(train_x), preprocess(test_x)
Y, U = torch.from_numpy(train_y).float(), torch.from_numpy(test_y).float()

# %%
class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ELU(), nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.ELU(),
            nn.Conv2d(24, 24, 3, padding=1), nn.ELU())
        self.density = nn.Conv2d(24, 1, 1)

    def forward(self, x):
        return self.density(self.features(x)).mean((1, 2, 3)) * 4

net = Counter()
opt = torch.optim.AdamW(net.parameters(), lr=4e-3)
sched = torch.optim.lr_scheduler.StepLR(opt, 150, 0.3)

# %%
for i in range(350):
    b = torch.randint(len(X), (40,))
    loss = nn.functional.smooth_l1_loss(net(X[b]), Y[b])
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    sched.step()
    if i % 50 == 49:
        with torch.no_grad():
            mae = (net(T) - U).abs().mean()
        print(i + 1, f"train {loss.item():.4f}  test MAE {mae.item():.3f}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
