"""Implicit-feedback matrix factorisation with BPR: sparse embedding tables on SparseAdam, dense biases on Adam, leave-one-out hit rate.

fault items_not_trained: DK101 at parameter:item.weight
fault negatives_frozen: none
fault holdout_leaks: none
fault neg_indexed_by_user: none
"""
import torch
import torch.nn.functional as F

N_USERS, N_ITEMS, D = 120, 90, 12


def interactions(seed=0):
    """Users of one taste buy mostly items of this taste; returns a list of item tensors, one for each user."""
    g = torch.Generator().manual_seed(seed)
    taste_u = torch.randint(0, 5, (N_USERS,), generator=g)
    taste_i = torch.arange(N_ITEMS) % 5
    bought = []
    for u in range(N_USERS):
        weight = torch.where(taste_i == taste_u[u], 12.0, 0.4)
        bought.append(torch.multinomial(weight, 9, generator=g))
    return bought


class MF(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.user = torch.nn.Embedding(N_USERS, D, sparse=True)
        self.item = torch.nn.Embedding(N_ITEMS, D, sparse=True)
        self.bias = torch.nn.Parameter(torch.zeros(N_ITEMS))
        for e in (self.user, self.item):
            torch.nn.init.normal_(e.weight, std=0.1)

    def score(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1) + self.bias[i]

    def score_all(self):
        return self.user.weight @ self.item.weight.T + self.bias


def draw_negatives(users, seen, gen):
    """Rejection sampling: items that these users did not buy."""
    neg = torch.randint(0, N_ITEMS, users.shape, generator=gen)
    bad = seen[users, neg]
    while bad.any():
        neg[bad] = torch.randint(0, N_ITEMS, (int(bad.sum()),), generator=gen)
        bad = seen[users, neg]
    return neg


@torch.no_grad()
def hit_rate(model, seen, held, k=10):
    scores = model.score_all().masked_fill(seen, float("-inf"))
    return (scores.topk(k, dim=1).indices == held[:, None]).any(1).float().mean().item()


def train():
    torch.manual_seed(6)
    gen = torch.Generator().manual_seed(99)
    bought = interactions()
    held = torch.stack([b[-1] for b in bought])
    pairs = [(u, i) for u, b in enumerate(bought) for i in b[:-1].tolist()]  #! holdout_leaks: pairs = [(u, i) for u, b in enumerate(bought) for i in b.tolist()]
    users, items = torch.tensor(pairs).T
    seen = torch.zeros(N_USERS, N_ITEMS, dtype=torch.bool)
    seen[users, items] = True
    known = seen.clone()
    known[torch.arange(N_USERS), held] = False
    model = MF()
    sparse = torch.optim.SparseAdam([model.user.weight, model.item.weight], lr=0.02)  #! items_not_trained: sparse = torch.optim.SparseAdam([model.user.weight], lr=0.02)
    dense = torch.optim.Adam([model.bias], lr=0.01)
    losses, hits = [], [hit_rate(model, known, held)]
    for epoch in range(12):
        negatives = draw_negatives(users, seen, gen)  #! negatives_frozen: negatives = draw_negatives(users, seen, torch.Generator().manual_seed(99))
        for idx in torch.randperm(len(users), generator=gen).split(96):
            u, pos, neg = users[idx], items[idx], negatives[idx]
            diff = model.score(u, pos) - model.score(u, neg)  #! neg_indexed_by_user: diff = model.score(u, pos) - model.score(neg, pos)
            rows = torch.cat([model.user(u), model.item(pos), model.item(neg)])
            loss = -F.logsigmoid(diff).mean() + 1e-3 * rows.pow(2).sum(-1).mean()
            sparse.zero_grad()
            dense.zero_grad()
            loss.backward()
            sparse.step()
            dense.step()
            losses.append(loss.item())
        hits.append(hit_rate(model, known, held))
    return losses, hits


WATCH = ()
