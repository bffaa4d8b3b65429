"""Lightning tabular transformer for churn: embedded categorical columns, quantile-normalised numeric columns, BCE-with-logits.

fault sigmoid_twice: DK308
fault emb_plain_list: DK101
fault raw_numeric: DK319
fault label_leak: DK404
"""
import logging
import warnings

import numpy as np
import torch
import torch.nn as nn
import lightning as L
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
    logging.getLogger(name).setLevel(logging.ERROR)

NUM = ["income", "tenure", "age", "visits"]
CAT = ["plan", "region", "channel"]
TARGET = "churned"
FEATURES_CAT = list(CAT)  #! label_leak: FEATURES_CAT = list(CAT) + [TARGET]
CARD = {"plan": 4, "region": 8, "channel": 3, TARGET: 2}


def make_table(n, seed):
    r = np.random.default_rng(seed)
    t = {c: r.integers(CARD[c], size=n) for c in CAT}
    t["income"] = np.exp(r.normal(10.4, 0.6, n))
    t["tenure"] = r.gamma(2.0, 14.0, n)
    t["age"] = r.uniform(18, 85, n)
    t["visits"] = r.poisson(6, n).astype(float)
    plan, region = np.array([1.2, -0.4, 0.3, -1.1]), r.normal(0, 0.9, 8)
    score = (plan[t["plan"]] + region[t["region"]] - 0.06 * (t["tenure"] - 28)
             + 1.3 * (np.log(t["income"]) - 10.4) * np.where(t["channel"] == 1, 1.5, -0.8) - 0.15 * (t["visits"] - 6))
    t[TARGET] = (score + r.logistic(0, 0.6, n) > 0).astype(np.int64)
    return t


class QuantileNormal:
    """Maps each column to a standard normal by its empirical quantiles on the fitted rows."""

    def __init__(self, n_q=100):
        self.p = np.linspace(0.005, 0.995, n_q)
        self.z = torch.special.ndtri(torch.tensor(self.p)).numpy()

    def fit(self, x):
        self.q = np.quantile(x, self.p, axis=0)
        return self

    def transform(self, x):
        cols = [np.interp(x[:, j], self.q[:, j], self.z) for j in range(x.shape[1])]
        return np.stack(cols, 1).astype(np.float32)


class TableSet(Dataset):
    def __init__(self, table, rows, qn):
        num = np.stack([table[c][rows] for c in NUM], 1)
        self.num = torch.from_numpy(qn.transform(num))  #! raw_numeric: self.num = torch.from_numpy(num).float()
        self.cat = torch.from_numpy(np.stack([table[c][rows] for c in FEATURES_CAT], 1))
        self.y = torch.from_numpy(table[TARGET][rows]).float()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"num": self.num[i], "cat": self.cat[i], "y": self.y[i]}


class ChurnData(L.LightningDataModule):
    def __init__(self, n=1600, batch_size=64, seed=13):
        super().__init__()
        self.n, self.batch_size, self.seed = n, batch_size, seed

    def setup(self, stage=None):
        table = make_table(self.n, self.seed)
        order = np.random.default_rng(self.seed + 1).permutation(self.n)
        tr, va = order[: int(0.8 * self.n)], order[int(0.8 * self.n):]
        qn = QuantileNormal().fit(np.stack([table[c][tr] for c in NUM], 1))
        self.train_set, self.val_set = TableSet(table, tr, qn), TableSet(table, va, qn)

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, 160)


class TabTransformer(L.LightningModule):
    def __init__(self, dim=24, heads=4, depth=2, lr=3e-3, dropout=0.1):
        super().__init__()
        self.save_hyperparameters()
        embs = [nn.Embedding(CARD[c], dim) for c in FEATURES_CAT]
        self.embs = nn.ModuleList(embs)  #! emb_plain_list: self.embs = embs
        self.num_w = nn.Parameter(torch.randn(len(NUM), dim) / dim ** 0.5)
        self.num_b = nn.Parameter(torch.zeros(len(NUM), dim))
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, 1)
        self.loss_fn = nn.BCEWithLogitsLoss()
        self.train_curve = []

    def forward(self, batch):
        num = batch["num"].unsqueeze(-1) * self.num_w + self.num_b
        cat = torch.stack([e(batch["cat"][:, j]) for j, e in enumerate(self.embs)], 1)
        tokens = torch.cat([self.cls.expand(len(num), -1, -1), num, cat], 1)
        out = self.head(self.encoder(tokens)[:, 0]).squeeze(-1)
        return out  #! sigmoid_twice: return torch.sigmoid(out)

    def training_step(self, batch, batch_idx):
        loss = self.loss_fn(self(batch), batch["y"])
        self.train_curve.append(loss.item())
        return loss

    def validation_step(self, batch, batch_idx):
        logits = self(batch)
        self.log("val_loss", self.loss_fn(logits, batch["y"]), batch_size=len(logits))
        self.log("val_acc", ((logits > 0).float() == batch["y"]).float().mean(), batch_size=len(logits))

    def configure_optimizers(self):
        decay = [p for p in self.parameters() if p.ndim > 1]
        rest = [p for p in self.parameters() if p.ndim <= 1]
        opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.02}, {"params": rest, "weight_decay": 0.0}], lr=self.hparams.lr)
        sch = torch.optim.lr_scheduler.OneCycleLR(opt, self.hparams.lr, total_steps=self.trainer.estimated_stepping_batches, pct_start=0.15)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sch, "interval": "step"}}


def train():
    L.seed_everything(13, verbose=False)
    model, data = TabTransformer(), ChurnData()
    trainer = L.Trainer(max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False, num_sanity_val_steps=0, gradient_clip_val=1.0)
    trainer.fit(model, data)
    c, m = model.train_curve, trainer.callback_metrics
    print(f"train loss {np.mean(c[:5]):.4f} -> {np.mean(c[-10:]):.4f}; val loss {m['val_loss']:.4f} acc {m['val_acc']:.3f}")


WATCH = ()
