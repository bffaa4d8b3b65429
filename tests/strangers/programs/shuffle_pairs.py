"""Inverse dynamics of a two-link arm: torques from state and wanted acceleration. Arrays only, no DataLoader.

fault pairs_torn_apart: none
"""
import logging

import numpy as np
import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("invdyn")


def arm(q, dq, ddq):
    m1, m2, l1, l2, g = 1.0, 0.7, 0.5, 0.4, 9.81
    c2, s2 = np.cos(q[:, 1]), np.sin(q[:, 1])
    M11 = m1 * l1**2 + m2 * (l1**2 + 2 * l1 * l2 * c2 + l2**2)
    M12 = m2 * (l1 * l2 * c2 + l2**2)
    M22 = m2 * l2**2
    h = m2 * l1 * l2 * s2
    t1 = M11 * ddq[:, 0] + M12 * ddq[:, 1] - h * (2 * dq[:, 0] * dq[:, 1] + dq[:, 1] ** 2)
    t1 += (m1 + m2) * g * l1 * np.cos(q[:, 0]) + m2 * g * l2 * np.cos(q.sum(1))
    t2 = M12 * ddq[:, 0] + M22 * ddq[:, 1] + h * dq[:, 0] ** 2 + m2 * g * l2 * np.cos(q.sum(1))
    return np.stack([t1, t2], 1)


def recordings(n, rng):
    q, dq, ddq = rng.uniform(-2, 2, (n, 2)), rng.normal(0, 1, (n, 2)), rng.normal(0, 2, (n, 2))
    return np.concatenate([q, dq, ddq], 1).astype(np.float32), arm(q, dq, ddq).astype(np.float32)


class MLP(nn.Sequential):
    def __init__(self, i, o, h=96):
        super().__init__(nn.Linear(i, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh(), nn.Linear(h, o))


def main(seed=0, epochs=8, batch=64):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    X, Y = recordings(2560, rng)
    Xv, Yv = recordings(512, rng)
    mx, sx, my, sy = X.mean(0), X.std(0), Y.mean(0), Y.std(0)
    X, Xv, Y, Yv = (X - mx) / sx, (Xv - mx) / sx, (Y - my) / sy, (Yv - my) / sy
    net = MLP(6, 2)
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    mse = nn.MSELoss()
    for epoch in range(epochs):
        order = rng.permutation(len(X))
        X, Y = X[order], Y[order]  #! pairs_torn_apart: X = X[order]
        net.train()
        losses = []
        for i in range(0, len(X), batch):
            x, y = torch.from_numpy(X[i:i + batch]), torch.from_numpy(Y[i:i + batch])
            opt.zero_grad()
            loss = mse(net(x), y)
            loss.backward()
            opt.step()
            losses.append(loss.item())
        net.eval()
        with torch.no_grad():
            v = mse(net(torch.from_numpy(Xv)), torch.from_numpy(Yv)).item()
        log.info("epoch %d train %.4f valid %.4f", epoch, np.mean(losses), v)


if __name__ == "__main__":
    main()


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
