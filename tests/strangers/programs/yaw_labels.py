"""Planar grasp: centre and yaw of a gripper from a depth crop. Annotation files store yaw in degrees.

fault sine_of_degrees: none
"""
import csv
import io
import math

import torch
from torch import nn
from torch.func import functional_call, grad_and_value

SIZE = 20


def annotations(n, seed):
    """What a labelling tool would export: name,x,y,yaw_deg"""
    g = torch.Generator().manual_seed(seed)
    buf = io.StringIO()
    w = csv.writer(buf)
    w.writerow(["name", "x", "y", "yaw_deg"])
    for i in range(n):
        x, y = (torch.rand(2, generator=g) * 0.8 - 0.4).tolist()
        yaw = (torch.rand((), generator=g) * 180 - 90).item()
        w.writerow([f"crop_{i:05d}", f"{x:.4f}", f"{y:.4f}", f"{yaw:.2f}"])
    buf.seek(0)
    return list(csv.DictReader(buf))


def render(row, g):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    a = math.radians(float(row["yaw_deg"]))
    dx, dy = xx - float(row["x"]), yy - float(row["y"])
    u, v = dx * math.cos(a) + dy * math.sin(a), -dx * math.sin(a) + dy * math.cos(a)
    bar = torch.sigmoid(12 * (0.55 - u.abs())) * torch.sigmoid(12 * (0.15 - v.abs()))
    return (bar + 0.05 * torch.randn(SIZE, SIZE, generator=g) - 0.15)[None] / 0.3


def load(n, seed):
    rows = annotations(n, seed)
    g = torch.Generator().manual_seed(seed + 1)
    images = torch.stack([render(r, g) for r in rows])
    xy = torch.tensor([[float(r["x"]), float(r["y"])] for r in rows])
    yaw = torch.tensor([float(r["yaw_deg"]) for r in rows])
    yaw = torch.deg2rad(yaw)  #! sine_of_degrees: pass
    # a parallel gripper is symmetric by half a turn: the double angle is the target
    target = torch.cat([xy, torch.sin(2 * yaw)[:, None], torch.cos(2 * yaw)[:, None]], 1)
    return images, target


def network():
    return nn.Sequential(nn.Conv2d(1, 16, 5, 2, 2), nn.SiLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.SiLU(), nn.Flatten(),
                         nn.Linear(32 * 25, 64), nn.SiLU(), nn.Linear(64, 4))


def main():
    torch.manual_seed(2)
    images, target = load(900, 10)
    test_images, test_target = load(150, 50)
    net = network()
    params = {k: v.detach() for k, v in net.named_parameters()}
    m = {k: torch.zeros_like(v) for k, v in params.items()}
    s = {k: torch.zeros_like(v) for k, v in params.items()}

    def objective(p, x, y):
        return ((functional_call(net, p, (x,)) - y) ** 2).mean()

    step_fn = grad_and_value(objective)
    for t in range(1, 251):
        i = torch.randint(len(images), (48,))
        g, loss = step_fn(params, images[i], target[i])
        for k in params:  # Adam
            m[k] = 0.9 * m[k] + 0.1 * g[k]
            s[k] = 0.99 * s[k] + 0.01 * g[k] ** 2
            params[k] = params[k] - 2e-3 * (m[k] / (1 - 0.9 ** t)) / ((s[k] / (1 - 0.99 ** t)).sqrt() + 1e-8)
        if t % 50 == 0:
            with torch.no_grad():
                out = functional_call(net, params, (test_images,))
            err = (torch.atan2(out[:, 2], out[:, 3]) - torch.atan2(test_target[:, 2], test_target[:, 3])) / 2
            err = torch.rad2deg(torch.atan2(torch.sin(2 * err), torch.cos(2 * err)) / 2).abs().mean()
            print(t, f"loss {loss.item():.4f} yaw error {err.item():.1f} deg")


if __name__ == "__main__":
    main()


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
