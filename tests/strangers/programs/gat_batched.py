"""Graph attention network without a graph library: block-diagonal batching, edge softmax by destination, mean readout.

fault no_node_offset: none
fault softmax_over_all: DK305
fault dropout_at_eval: DK506
fault last_batch_only: none
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader


def ring_or_star(label, g):
    """A noisy ring (0) or star (1); node features are the degree and random channels."""
    n = int(torch.randint(6, 11, (1,), generator=g))
    if label == 0:
        pairs = [(i, (i + 1) % n) for i in range(n)]
    else:
        pairs = [(0, i) for i in range(1, n)]
    extra = torch.randint(0, n, (3, 2), generator=g).tolist()
    pairs = {tuple(sorted(p)) for p in pairs + extra if p[0] != p[1]}
    e = torch.tensor(sorted(pairs)).T
    edges = torch.cat([e, e.flip(0), torch.arange(n).expand(2, n)], 1)
    marks = torch.randn(n, 4, generator=g)
    marks[:, 0] = torch.bincount(edges[1], minlength=n) - 3.0
    return {"x": marks, "edges": edges, "y": label}


def collate(graphs):
    xs, es, batch, offset = [], [], [], 0
    for k, gr in enumerate(graphs):
        n = len(gr["x"])
        xs.append(gr["x"])
        es.append(gr["edges"] + offset)  #! no_node_offset: es.append(gr["edges"])
        batch.append(torch.full((n,), k))
        offset += n
    return {"x": torch.cat(xs), "edges": torch.cat(es, 1), "batch": torch.cat(batch),
            "y": torch.tensor([gr["y"] for gr in graphs]), "n_graphs": len(graphs)}


def segment_softmax(score, seg, n):
    """Softmax over the rows with one segment id, for each head (column)."""
    idx = seg[:, None].expand_as(score)
    top = score.new_full((n, score.size(1)), float("-inf")).scatter_reduce(0, idx, score, "amax")
    w = (score - top.detach()[seg]).exp()
    return w / score.new_zeros(n, score.size(1)).index_add(0, seg, w)[seg]


class GATLayer(nn.Module):
    def __init__(self, cin, cout, heads=2, p=0.2):
        super().__init__()
        self.h, self.c, self.p = heads, cout // heads, p
        self.lin = nn.Linear(cin, cout, bias=False)
        self.a_src = nn.Parameter(torch.empty(heads, self.c))
        self.a_dst = nn.Parameter(torch.empty(heads, self.c))
        self.bias = nn.Parameter(torch.zeros(cout))
        nn.init.xavier_uniform_(self.a_src)
        nn.init.xavier_uniform_(self.a_dst)

    def forward(self, x, edges):
        src, dst = edges
        z = self.lin(x).view(-1, self.h, self.c)
        score = F.leaky_relu((z * self.a_src).sum(-1)[src] + (z * self.a_dst).sum(-1)[dst], 0.2)
        alpha = segment_softmax(score, dst, len(x))  #! softmax_over_all: alpha = score.softmax(0)
        alpha = F.dropout(alpha, self.p, self.training)  #! dropout_at_eval: alpha = F.dropout(alpha, self.p)
        out = torch.zeros_like(z).index_add(0, dst, alpha[..., None] * z[src])
        return out.flatten(1) + self.bias


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.head = GATLayer(4, 16), GATLayer(16, 16), nn.Linear(16, 2)

    def forward(self, b):
        x = F.elu(self.l1(b["x"], b["edges"]))
        x = F.elu(self.l2(x, b["edges"]))
        count = torch.bincount(b["batch"], minlength=b["n_graphs"]).unsqueeze(1)
        pooled = x.new_zeros(b["n_graphs"], 16).index_add(0, b["batch"], x) / count
        return self.head(pooled)


def train():
    torch.manual_seed(13)
    g = torch.Generator().manual_seed(13)
    graphs = [ring_or_star(i % 2, g) for i in range(300)]
    tr = DataLoader(graphs[:240], 24, shuffle=True, collate_fn=collate)
    va = DataLoader(graphs[240:], 24, collate_fn=collate)
    net = GAT()
    opt = torch.optim.NAdam(net.parameters(), lr=8e-3)
    losses, accs = [], []
    for epoch in range(10):
        net.train()
        for b in tr:
            loss = F.cross_entropy(net(b), b["y"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        net.eval()
        right = total = 0
        with torch.no_grad():
            for b in va:
                right += int((net(b).argmax(1) == b["y"]).sum())  #! last_batch_only: right = int((net(b).argmax(1) == b["y"]).sum())
                total += len(b["y"])
        accs.append(right / total)
    return losses, accs


WATCH = ()
