"""Tabular churn model with categorical embeddings and BatchNorm; early stopping on validation loss restores the best weights.

fault best_by_reference: DK513
fault stays_in_eval: DK505 at here|".eval()"
fault val_codes_differ: none
fault sigmoid_then_logits: DK308 at "crit(net("
"""
import copy
import numpy as np
import torch
import torch.nn as nn

CITIES = ["oslo", "bern", "rome", "lima", "cairo", "quito", "hanoi"]
PLANS = ["free", "basic", "pro"]


def make_table(n, rng, cities):
    city = rng.choice(cities, n)
    plan = rng.choice(PLANS, n, p=[0.5, 0.3, 0.2])
    age = rng.gamma(9, 5, n)
    spend = np.exp(rng.normal(3, 1, n))
    effect = {"oslo": 1.5, "bern": -1.5, "rome": 0.8, "lima": -0.8, "cairo": 2.0, "quito": -2.0, "hanoi": 0.0}
    logit = np.array([effect[c] for c in city]) + 0.05 * (age - 45) - 0.5 * (np.log(spend) - 3) + 1.2 * (plan == "pro") - 1.2
    y = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    return {"city": city, "plan": plan, "num": np.stack([age, np.log(spend)], 1).astype(np.float32), "y": y}


class Encoder:
    """Category codes and scaling learnt from one table; code 0 is kept for unseen categories."""

    def fit(self, table):
        self.maps = {c: {v: i + 1 for i, v in enumerate(dict.fromkeys(table[c]))} for c in ("city", "plan")}
        self.mu, self.sd = table["num"].mean(0), table["num"].std(0)
        return self

    def transform(self, table):
        cats = np.stack([[self.maps[c].get(v, 0) for v in table[c]] for c in ("city", "plan")], 1)
        num = (table["num"] - self.mu) / self.sd
        return torch.from_numpy(cats), torch.from_numpy(num), torch.from_numpy(table["y"])


class TabNet(nn.Module):
    def __init__(self, cards, n_num, dim=4, hidden=32):
        super().__init__()
        self.embs = nn.ModuleList(nn.Embedding(c + 1, dim) for c in cards)
        self.body = nn.Sequential(nn.Linear(len(cards) * dim + n_num, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
                                  nn.Dropout(0.1), nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
                                  nn.Linear(hidden, 1))

    def forward(self, cats, num):
        feats = [e(cats[:, j]) for j, e in enumerate(self.embs)] + [num]
        return self.body(torch.cat(feats, 1)).squeeze(1)  #! sigmoid_then_logits: return self.body(torch.cat(feats, 1)).squeeze(1).sigmoid()


def train():
    rng = np.random.default_rng(4)
    torch.manual_seed(4)
    table_tr, table_va = make_table(640, rng, CITIES), make_table(240, rng, CITIES)
    enc = Encoder().fit(table_tr)
    tr = enc.transform(table_tr)
    va = enc.transform(table_va)  #! val_codes_differ: va = Encoder().fit(table_va).transform(table_va)
    net = TabNet([len(enc.maps["city"]), len(enc.maps["plan"])], 2)
    crit = nn.BCEWithLogitsLoss()
    opt = torch.optim.AdamW(net.parameters(), lr=8e-3, weight_decay=1e-4)
    best, best_state, bad, patience = float("inf"), None, 0, 4
    losses, vals = [], []
    for epoch in range(15):
        net.train()  #! stays_in_eval: pass
        for idx in torch.randperm(640).split(64):
            cats, num, y = (t[idx] for t in tr)
            loss = crit(net(cats, num), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        net.eval()
        with torch.no_grad():
            vals.append(crit(net(va[0], va[1]), va[2]).item())
        if vals[-1] < best:
            best, bad = vals[-1], 0
            best_state = copy.deepcopy(net.state_dict())  #! best_by_reference: best_state = net.state_dict()
        else:
            bad += 1
            if bad >= patience:
                break
    net.load_state_dict(best_state)
    net.eval()
    with torch.no_grad():
        final = crit(net(va[0], va[1]), va[2]).item()
    return losses, vals, {"best": best, "restored": final}


WATCH = ()
