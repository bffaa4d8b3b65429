"""A backbone is pretrained on a pretext task and frozen; a small head is tuned on few labels.

fault requires_grad_attribute: DK113
"""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
W = torch.randn(32, 8)


def data(n, task):
    x = torch.randn(n, 32)
    z = torch.tanh(x @ W / 4)
    y = z if task == "pretext" else (z[:, 0] * z[:, 1] + z[:, 2] > 0).long()
    return x, y


def train():
    backbone = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8))
    pre = torch.optim.Adam(backbone.parameters(), lr=1e-2)
    for it in range(300):
        x, y = data(64, "pretext")
        loss = F.mse_loss(backbone(x), y)
        pre.zero_grad()
        loss.backward()
        pre.step()
    print("pretext loss", loss.item())

    # fine-tune only a small head on few labels
    backbone.requires_grad_(False)  #! requires_grad_attribute: backbone.requires_grad = False
    snapshot = copy.deepcopy(backbone.state_dict())
    head = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    model = nn.Sequential(backbone, head)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    xs, ys = data(80, "label")
    xt, yt = data(1000, "label")
    for epoch in range(60):
        model.train()
        for i in range(0, 80, 16):
            optimizer.zero_grad()
            out = model(xs[i:i + 16])
            loss = F.cross_entropy(out, ys[i:i + 16])
            loss.backward()
            optimizer.step()
        if epoch % 15 == 14:
            model.eval()
            with torch.no_grad():
                acc = (model(xt).argmax(1) == yt).float().mean().item()
            print(f"epoch {epoch} train loss {loss.item():.4f} test acc {acc:.3f}")
    with torch.no_grad():
        x, y = data(500, "pretext")
        print("pretext loss after fine-tuning", F.mse_loss(backbone(x), y).item())


WATCH = ()
