"""SimCLR with a projection head on synthetic texture patches, then a linear probe on frozen backbone features.

fault self_not_masked: none
fault normalize_batch_dim: none
fault same_view_twice: none
fault probe_train_mode: DK510 at here|module:0.1
"""
import itertools
import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES, SIDE = 4, 12


def textures(n, gen):
    y = torch.randint(CLASSES, (n,), generator=gen)
    r = torch.arange(SIDE).float()
    yy, xx = torch.meshgrid(r, r, indexing="ij")
    banks = torch.stack([torch.sin(1.3 * xx), torch.sin(1.3 * yy), torch.sin(1.3 * xx) * torch.sin(1.3 * yy), torch.sin(0.9 * (xx + yy))])
    return banks[y].unsqueeze(1) + 0.5 * torch.randn(n, 1, SIDE, SIDE, generator=gen), y


class Augment:
    def __init__(self, gen):
        self.gen = gen

    def __call__(self, x):
        n = len(x)
        dy, dx = torch.randint(0, 5, (2, n), generator=self.gen)
        rows = (torch.arange(8)[None] + dy[:, None])[:, :, None]
        cols = (torch.arange(8)[None] + dx[:, None])[:, None, :]
        crop = x[torch.arange(n)[:, None, None], 0, rows, cols].unsqueeze(1)
        gain = 0.7 + 0.6 * torch.rand(n, 1, 1, 1, generator=self.gen)
        return crop * gain + 0.2 * torch.randn(crop.shape, generator=self.gen)


def backbone():
    def block(i, o, s):
        return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))
    return nn.Sequential(block(1, 16, 1), block(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def nt_xent(za, zb, tau=0.2):
    z = F.normalize(torch.cat([za, zb]), dim=1)  #! normalize_batch_dim: z = F.normalize(torch.cat([za, zb]), dim=0)
    sim = z @ z.t() / tau
    sim.fill_diagonal_(float("-inf"))  #! self_not_masked: sim = sim.clone()
    n = len(za)
    return F.cross_entropy(sim, torch.arange(2 * n).roll(n))


def probe(encoder, train_xy, test_xy, steps=60):
    encoder.requires_grad_(False)
    encoder.eval()  #! probe_train_mode: encoder.train()
    crop = lambda x: x[:, :, 2:10, 2:10]
    with torch.no_grad():
        fit, held = encoder(crop(train_xy[0])), encoder(crop(test_xy[0]))
    mu, sd = fit.mean(0), fit.std(0) + 1e-5
    fit, held = (fit - mu) / sd, (held - mu) / sd
    head = nn.Linear(fit.shape[1], CLASSES)
    nn.init.zeros_(head.weight)
    opt = torch.optim.SGD(head.parameters(), lr=0.5, momentum=0.9, weight_decay=1e-4)
    for _ in range(steps):
        opt.zero_grad()
        F.cross_entropy(head(fit), train_xy[1]).backward()
        opt.step()
    with torch.no_grad():
        return (head(held).argmax(1) == test_xy[1]).float().mean().item()


def train():
    torch.manual_seed(101)
    gen = torch.Generator().manual_seed(102)
    unlabelled, _ = textures(768, gen)
    labelled, test = textures(64, gen), textures(256, gen)
    encoder, head = backbone(), nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16, bias=False))
    augment = Augment(gen)
    opt = torch.optim.SGD(itertools.chain(encoder.parameters(), head.parameters()), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=8 * 6)
    history = []
    for _ in range(8):
        perm = torch.randperm(768, generator=gen)
        for i in range(0, 768, 128):
            x = unlabelled[perm[i:i + 128]]
            a = augment(x)
            b = augment(x)  #! same_view_twice: b = a.clone()
            za, zb = head(encoder(torch.cat([a, b]))).chunk(2)
            loss = nt_xent(za, zb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            history.append(loss.item())
    train.score = probe(encoder, labelled, test)
    return history


WATCH = ()
