"""Lightning: an LSTM over packed histories imitates two robots with different units; per-robot statistics and a weighted sampler.

fault stats_swapped: none
fault sampler_weights: none
fault no_mask: DK309
fault dropout_functional: DK506
"""
import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import ConcatDataset, DataLoader, Dataset, WeightedRandomSampler

ROBOTS = {"arm_deg": dict(unit=57.3, n=260, gain=0.35), "base_mm": dict(unit=1000.0, n=40, gain=0.2)}


class RobotLogs(Dataset):
    """Sequences of (position, reading of a noisy goal sensor); the action is a step towards the goal filtered from the readings."""

    def __init__(self, robot, split):
        spec, self.robot = ROBOTS[robot], list(ROBOTS).index(robot)
        n = spec["n"] if split == "train" else max(16, spec["n"] // 8)
        g = torch.Generator().manual_seed(1000 * self.robot + (1 if split == "train" else 2))
        self.rows = []
        for _ in range(n):
            T = int(torch.randint(6, 21, (1,), generator=g))
            pos, goal, est = torch.randn(2, generator=g), torch.randn(2, generator=g), None
            obs, act = [], []
            for _ in range(T):
                seen = goal + 0.4 * torch.randn(2, generator=g)
                est = seen if est is None else 0.7 * est + 0.3 * seen
                a = spec["gain"] * (est - pos)
                obs.append(torch.cat([pos, seen]) * spec["unit"])
                act.append(a * spec["unit"])
                pos = pos + a
            self.rows.append((torch.stack(obs), torch.stack(act)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        obs, act = self.rows[i]
        return {"obs": obs, "act": act, "robot": self.robot}

    def statistics(self):
        obs, act = torch.cat([r[0] for r in self.rows]), torch.cat([r[1] for r in self.rows])
        return obs.mean(0), obs.std(0), act.mean(0), act.std(0)


def collate(rows):
    return {
        "obs": pad_sequence([r["obs"] for r in rows], batch_first=True),
        "act": pad_sequence([r["act"] for r in rows], batch_first=True),
        "length": torch.tensor([len(r["obs"]) for r in rows]),
        "robot": torch.tensor([r["robot"] for r in rows]),
    }


class Robots(L.LightningDataModule):
    def setup(self, stage=None):
        self.train_sets = [RobotLogs(r, "train") for r in ROBOTS]
        self.val_sets = [RobotLogs(r, "val") for r in ROBOTS]

    def train_dataloader(self):
        sizes = [len(d) for d in self.train_sets]
        weights = torch.cat([torch.full((n,), 1.0 / n) for n in sizes])  #! sampler_weights: weights = torch.cat([torch.full((n,), float(n)) for n in sizes])
        sampler = WeightedRandomSampler(weights, num_samples=32 * 15, generator=torch.Generator().manual_seed(0))
        return DataLoader(ConcatDataset(self.train_sets), batch_size=32, sampler=sampler, collate_fn=collate)

    def val_dataloader(self):
        return [DataLoader(d, batch_size=32, collate_fn=collate) for d in self.val_sets]


class HistoryPolicy(L.LightningModule):
    def __init__(self, stats, hidden=64, lr=4e-3, p=0.1):
        super().__init__()
        for name, rows in zip(("o_mean", "o_std", "a_mean", "a_std"), zip(*stats)):
            self.register_buffer(name, torch.stack(rows))
        self.robot_emb = nn.Embedding(len(ROBOTS), 8)
        self.inp = nn.Linear(4 + 8, hidden)
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True)
        self.head = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, 2))
        self.lr, self.p = lr, p

    def normalise(self, batch):
        r = batch["robot"]  #! stats_swapped: r = 1 - batch["robot"]
        obs = (batch["obs"] - self.o_mean[r][:, None]) / self.o_std[r][:, None]
        act = (batch["act"] - self.a_mean[r][:, None]) / self.a_std[r][:, None]
        return obs, act

    def forward(self, obs, robot, length):
        emb = self.robot_emb(robot)[:, None].expand(-1, obs.shape[1], -1)
        x = torch.relu(self.inp(torch.cat([obs, emb], -1)))
        packed = pack_padded_sequence(x, length.cpu(), batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=obs.shape[1])
        h = F.dropout(h, self.p, training=self.training)  #! dropout_functional: h = F.dropout(h, self.p)
        return self.head(h)

    def masked_mse(self, batch):
        obs, act = self.normalise(batch)
        pred = self(obs, batch["robot"], batch["length"])
        mask = torch.arange(obs.shape[1], device=obs.device)[None] < batch["length"][:, None]
        se = (pred - act).pow(2).mean(-1)
        return (se * mask).sum() / mask.sum()  #! no_mask: return se.mean()

    def training_step(self, batch, i):
        loss = self.masked_mse(batch)
        if i == 0:
            print(f"epoch {self.current_epoch} first batch loss {loss.item():.3f}")
        return loss

    def validation_step(self, batch, i, dataloader_idx=0):
        self.log("val", self.masked_mse(batch), batch_size=len(batch["robot"]))

    def on_validation_epoch_end(self):
        m = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch} " + " ".join(f"{k} {float(v):.3f}" for k, v in sorted(m.items()) if k.startswith("val")))

    def configure_optimizers(self):
        norm_or_bias = [p for p in self.parameters() if p.ndim < 2]
        weights = [p for p in self.parameters() if p.ndim >= 2]
        opt = torch.optim.AdamW([{"params": weights, "weight_decay": 1e-3}, {"params": norm_or_bias, "weight_decay": 0.0}], lr=self.lr)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=self.trainer.estimated_stepping_batches)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def train():
    L.seed_everything(0, verbose=False)
    data = Robots()
    data.setup()
    model = HistoryPolicy([d.statistics() for d in data.train_sets])
    trainer = L.Trainer(max_epochs=6, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0, num_sanity_val_steps=0)
    trainer.fit(model, datamodule=data)


WATCH = ()
