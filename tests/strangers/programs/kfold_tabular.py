"""k-fold tabular multi-task net: categorical embeddings, learned uncertainty weights, ReduceLROnPlateau, early stopping with best weights."""
import copy
from dataclasses import dataclass, field
import numpy as np, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

rng = np.random.default_rng(0)
torch.manual_seed(0)
n = 900
cat = np.stack([rng.integers(0, c, n) for c in (7, 12, 3)], 1)
num = rng.normal(size=(n, 5)) * [1, 20, 3, .1, 5] + [0, 50, -2, 1, 0]
eff = [rng.normal(size=c) for c in (7, 12, 3)]
price = 100 + 30 * (sum(e[cat[:, i]] for i, e in enumerate(eff)) + (num[:, 1] - 50) / 20 + .1 * rng.normal(size=n))
churn = ((num[:, 2] + 2) / 3 + eff[0][cat[:, 0]] + .2 * rng.normal(size=n) > 0).astype(np.float32)


@dataclass
class Row:
    cat: torch.Tensor
    num: torch.Tensor
    price: torch.Tensor
    churn: torch.Tensor


class Table(Dataset):
    def __init__(self): self.rows = [Row(torch.tensor(c), torch.tensor(x, dtype=torch.float32), torch.tensor([p], dtype=torch.float32), torch.tensor([k])) for c, x, p, k in zip(cat, num, price, churn)]
    def __len__(self): return len(self.rows)
    def __getitem__(self, i): return self.rows[i]
    @staticmethod
    def collate(rows): return Row(*(torch.stack([getattr(r, f) for r in rows]) for f in ("cat", "num", "price", "churn")))


class TabNet(nn.Module):
    def __init__(self, cards, n_num, stats):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(c, min(8, (c + 1) // 2)) for c in cards)
        d = sum(e.embedding_dim for e in self.emb) + n_num
        self.bn = nn.BatchNorm1d(n_num)
        self.trunk = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Dropout(.1), nn.Linear(64, 32), nn.ReLU())
        self.heads = nn.ModuleDict({"price": nn.Linear(32, 1), "churn": nn.Linear(32, 1)})
        self.log_var = nn.ParameterDict({k: nn.Parameter(torch.zeros(())) for k in self.heads})
        self.register_buffer("pm", stats[0]); self.register_buffer("ps", stats[1])

    def forward(self, r):
        h = torch.cat([e(r.cat[:, i]) for i, e in enumerate(self.emb)] + [self.bn(r.num)], 1)
        h = self.trunk(h)
        return {k: f(h) for k, f in self.heads.items()}

    def loss(self, out, r):
        parts = {"price": nn.functional.mse_loss(out["price"], (r.price - self.pm) / self.ps), "churn": nn.functional.binary_cross_entropy_with_logits(out["churn"], r.churn)}
        return sum(torch.exp(-self.log_var[k]) * v + self.log_var[k] * .5 for k, v in parts.items()), parts


@dataclass
class EarlyStopping:
    patience: int = 3
    best: float = float("inf")
    bad: int = 0
    state: dict = field(default_factory=dict)
    def __call__(self, v, model):
        if v < self.best - 1e-4:
            self.best, self.bad, self.state = v, 0, copy.deepcopy(model.state_dict())
        else:
            self.bad += 1
        return self.bad >= self.patience


def train():
    table, scores = Table(), []
    folds = np.array_split(rng.permutation(n), 3)
    for k, hold in enumerate(folds):
        tr = np.concatenate([f for j, f in enumerate(folds) if j != k])
        p = torch.tensor(price[tr], dtype=torch.float32)
        model = TabNet((7, 12, 3), 5, (p.mean(), p.std()))
        opt = torch.optim.Adam(model.parameters(), lr=8e-3)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=.3, patience=1)
        stop = EarlyStopping()
        train = DataLoader(Subset(table, tr.tolist()), 50, shuffle=True, collate_fn=Table.collate, drop_last=True)
        valid = DataLoader(Subset(table, hold.tolist()), 100, collate_fn=Table.collate)
        for epoch in range(12):
            model.train()
            for r in train:
                loss, _ = model.loss(model(r), r)
                opt.zero_grad(); loss.backward(); opt.step()
            model.eval()
            with torch.no_grad():
                parts = [model.loss(model(r), r)[1] for r in valid]
            v = sum(float(q["price"] + q["churn"]) for q in parts) / len(parts)
            plateau.step(v)
            if epoch == 0: first = v
            if stop(v, model):
                break
        model.load_state_dict(stop.state)
        scores.append(stop.best)
        print(f"fold {k}: {first:.3f} -> {stop.best:.3f} after {epoch + 1} epochs, s = { {a: round(b.item(), 2) for a, b in model.log_var.items()} }")
    print("cv", np.mean(scores))


WATCH = ()
