"""A convolutional network with batch norm under CPU autocast in bfloat16, images from 0 to 255 normalised in the model, several views flattened into the batch.

fault view_for_permute: DK324 at here
fault eval_without_statistics: DK510|DK505 at here|module:stem.1
fault no_normalisation: DK301|DK302 at module:stem|module:stem.0
fault bn_eval_never_undone: DK505 at "net.eval()"
"""
import torch
from torch import nn

torch.manual_seed(12)
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)

class MultiView(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1))
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.fc = nn.Linear(16 * 2, 4)
    def forward(self, views):
        b, n, h, w, c = views.shape
        x = views.flatten(0, 1).permute(0, 3, 1, 2).float()  #! view_for_permute: x = views.flatten(0, 1).reshape(b * n, c, h, w).float()
        x = (x / 255 - self.mean) / self.std  #! no_normalisation: x = x
        x = self.stem(x).mean((2, 3))
        return self.fc(x.view(b, n * 16))

net = MultiView()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
crit = nn.CrossEntropyLoss(label_smoothing=0.1)

def batch(n=8):
    y = torch.randint(0, 4, (n,))
    x = torch.randint(0, 120, (n, 2, 16, 16, 3))
    for i in range(n):
        x[i, :, 4 * y[i]:4 * y[i] + 4, :, :] += 130
    return x.to(torch.uint8), y

def loss_fn(m, b):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return crit(m(b[0]), b[1])

def validate():
    net.eval()  #! eval_without_statistics: pass
    with torch.no_grad():
        acc = sum((net(x).argmax(1) == y).float().mean().item() for x, y in [batch() for _ in range(2)])
    net.train()  #! bn_eval_never_undone: pass
    return acc / 2

def train():
    for epoch in range(4):
        for _ in range(8):
            opt.zero_grad()
            loss_fn(net, batch()).backward()
            opt.step()
        validate()

CHECK = lambda: dict(model=net, batch=batch(), loss_fn=loss_fn, optimizer=opt)
WATCH = (net, opt)
