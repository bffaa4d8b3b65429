"""TransE on a synthetic grid-world knowledge graph with margin loss, unit-ball entities and filtered mean rank.

fault corrupts_alias: none
fault norm_wrong_axis: DK305
fault margin_swapped: none
fault best_is_largest: none
"""
import random
import torch
from torch import nn

SIDE, DIM, MARGIN = 7, 24, 1.0
RELATIONS = {"right_of": (1, 0), "above": (0, 1), "two_right": (2, 0), "diagonal": (1, 1)}


def build_graph():
    ent = {(x, y): x * SIDE + y for x in range(SIDE) for y in range(SIDE)}
    triples = []
    for r, (dx, dy) in enumerate(RELATIONS.values()):
        for (x, y), head in ent.items():
            if (x + dx, y + dy) in ent:
                triples.append((head, r, ent[x + dx, y + dy]))
    return len(ent), triples


class TransE(nn.Module):
    def __init__(self, n_ent, n_rel):
        super().__init__()
        bound = 6 / DIM ** 0.5
        self.ent = nn.Embedding(n_ent, DIM)
        self.rel = nn.Embedding(n_rel, DIM)
        nn.init.uniform_(self.ent.weight, -bound, bound)
        nn.init.uniform_(self.rel.weight, -bound, bound)
        self.project()

    @torch.no_grad()
    def project(self):
        w = self.ent.weight
        w.div_(w.norm(dim=1, keepdim=True).clamp(min=1.0))

    def forward(self, hrt):
        h, r, t = hrt.unbind(1)
        return torch.norm(self.ent(h) + self.rel(r) - self.ent(t), dim=-1)  #! norm_wrong_axis: return torch.norm(self.ent(h) + self.rel(r) - self.ent(t), dim=0)


def corrupt(batch, n_ent):
    """Replace the head or the tail of every triple by a random entity."""
    neg = batch.clone()  #! corrupts_alias: neg = batch
    side = torch.where(torch.rand(len(batch)) < 0.5, 0, 2)
    neg[torch.arange(len(batch)), side] = torch.randint(n_ent, (len(batch),))
    return neg


@torch.no_grad()
def filtered_mean_rank(model, triples, known, n_ent):
    ranks = []
    for h, r, t in triples:
        cand = torch.tensor([(h, r, e) for e in range(n_ent)])
        d = torch.norm(model.ent(cand[:, 0]) + model.rel(cand[:, 1]) - model.ent(cand[:, 2]), dim=-1)
        others = [e for e in known[h, r] if e != t]
        d[others] = float("inf")
        ranks.append(1 + int((d < d[t]).sum()))  #! best_is_largest: ranks.append(1 + int((d > d[t]).sum()))
    return sum(ranks) / len(ranks)


def train():
    random.seed(1)
    torch.manual_seed(1)
    n_ent, triples = build_graph()
    random.shuffle(triples)
    cut = int(0.85 * len(triples))
    train_set, test_set = torch.tensor(triples[:cut]), triples[cut:]
    known = {}
    for h, r, t in triples:
        known.setdefault((h, r), []).append(t)
    model = TransE(n_ent, len(RELATIONS))
    criterion = nn.MarginRankingLoss(margin=MARGIN)
    opt = torch.optim.Adagrad(model.parameters(), lr=0.15)
    losses, ranks = [], [filtered_mean_rank(model, test_set, known, n_ent)]
    for epoch in range(40):
        perm = torch.randperm(len(train_set))
        for i in range(0, len(perm), 48):
            pos = train_set[perm[i:i + 48]]
            neg = corrupt(pos, n_ent)
            d_pos, d_neg = model(pos), model(neg)
            loss = criterion(d_neg, d_pos, torch.ones_like(d_pos))  #! margin_swapped: loss = criterion(d_pos, d_neg, torch.ones_like(d_pos))
            opt.zero_grad()
            loss.backward()
            opt.step()
            model.project()
            losses.append(loss.item())
        if epoch % 10 == 9:
            ranks.append(filtered_mean_rank(model, test_set, known, n_ent))
    return losses, ranks


WATCH = ()
