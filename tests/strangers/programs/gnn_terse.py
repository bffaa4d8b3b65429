"""Terse functional message passing on batches of little molecule-like graphs, parameters in a plain dict, graph-level regression.

fault no_offset: none
fault labels_shuffled: none
fault zero_init: DK120|DK107|DK115
fault no_zero_grad: DK501
"""
import math
import torch
import torch.nn.functional as F

D, ROUNDS, B, EPOCHS, N_TRAIN, N_VAL, KINDS = 32, 3, 32, 10, 384, 96, 5
CHARGE = torch.tensor([1.0, -0.5, 2.0, 0.3, -1.2])


def graph(g):  # random tree + a few rings; target = sum of charge products over bonds, plus node count
    n = int(torch.randint(5, 12, (1,), generator=g))
    kind = torch.randint(KINDS, (n,), generator=g)
    e = [(i, int(torch.randint(i, (1,), generator=g))) for i in range(1, n)]
    for _ in range(2):
        i, j = torch.randperm(n, generator=g)[:2].tolist()
        if (i, j) not in e and (j, i) not in e:
            e.append((i, j))
    ei = torch.tensor(e).T
    y = (CHARGE[kind[ei[0]]] * CHARGE[kind[ei[1]]]).sum() + 0.2 * n
    return kind, torch.cat([ei, ei.flip(0)], 1), y  # both directions


def collate(gs):
    kinds, edges, owner, off = [], [], [], 0
    for i, (k, e) in enumerate(gs):
        kinds.append(k)
        edges.append(e + off)  #! no_offset: edges.append(e)
        owner.append(torch.full((len(k),), i))
        off += len(k)
    return torch.cat(kinds), torch.cat(edges, 1), torch.cat(owner), len(gs)


def dense(i, o, gain=1.0):
    w = torch.randn(i, o) * gain / math.sqrt(i)  #! zero_init: w = torch.zeros(i, o)
    return [w.requires_grad_(), torch.zeros(o, requires_grad=True)]


def init():
    p = {"emb": [torch.randn(KINDS, D).requires_grad_()]}
    for r in range(ROUNDS):
        p[f"msg{r}"], p[f"upd{r}"] = dense(2 * D, D, math.sqrt(2)), dense(2 * D, D, math.sqrt(2))
    p["out1"], p["out2"] = dense(D, D, math.sqrt(2)), dense(D, 1, 0.1)
    return p


def lin(p, x):
    return x @ p[0] + p[1]


def scatter_sum(v, idx, n):
    return torch.zeros(n, v.shape[1]).index_add_(0, idx, v)


def apply(p, batch):
    kind, (src, dst), owner, n_graphs = batch
    h = p["emb"][0][kind]
    for r in range(ROUNDS):
        m = F.relu(lin(p[f"msg{r}"], torch.cat([h[src], h[dst]], 1)))
        u = lin(p[f"upd{r}"], torch.cat([h, scatter_sum(m, dst, len(h))], 1))
        h = F.layer_norm(h + F.relu(u), (D,))
    return scatter_sum(lin(p["out2"], F.relu(lin(p["out1"], h))), owner, n_graphs).squeeze(1)


def batches(gs, ys, shuffle):
    o = torch.randperm(len(gs)) if shuffle else torch.arange(len(gs))
    t = ys[o]  #! labels_shuffled: t = ys[torch.randperm(len(gs))]
    for s in range(0, len(gs), B):
        yield collate([gs[i] for i in o[s:s + B].tolist()]), t[s:s + B]


@torch.no_grad()
def mae(p, gs, ys, sd):
    return sum((apply(p, b) - t).abs().sum().item() for b, t in batches(gs, ys, False)) / len(gs) * sd


def train():
    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(5)
    data = [graph(gen) for _ in range(N_TRAIN + N_VAL)]
    gs, y = [d[:2] for d in data], torch.stack([d[2] for d in data])
    mu, sd = y[:N_TRAIN].mean(), y[:N_TRAIN].std().item()
    y = (y - mu) / sd
    tr, va = (gs[:N_TRAIN], y[:N_TRAIN]), (gs[N_TRAIN:], y[N_TRAIN:])
    p = init()
    leaves = [t for ts in p.values() for t in ts]
    opt = torch.optim.Adam(leaves, lr=3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS, eta_min=1e-4)
    start = mae(p, *va, sd)
    for ep in range(EPOCHS):
        tot = 0.0
        for b, t in batches(*tr, True):
            loss = F.mse_loss(apply(p, b), t)
            opt.zero_grad()  #! no_zero_grad: pass
            loss.backward()
            torch.nn.utils.clip_grad_norm_(leaves, 5.0)
            opt.step()
            tot += loss.item() * len(t) / N_TRAIN
        sched.step()
        if ep in (0, EPOCHS - 1):
            print(f"ep {ep} mse {tot:.4f} val mae {mae(p, *va, sd):.3f} (start {start:.3f})")


WATCH = ()
