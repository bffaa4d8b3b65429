"""CLIP-like contrastive learning as a LightningModule with manual optimisation: one optimizer per tower, learnable temperature, checkpoint of the best validation loss.

fault no_zero: DK501
fault same_tower: DK101|DK104
fault pool_last: none
fault norm_batch: DK305
"""
import logging
import random
import tempfile
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, Sampler, Subset, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")

COLOURS = ["red", "green", "blue", "white", "cyan", "pink"]
SHAPES = ["bar", "column", "dot", "frame"]
EXTRA = ["a", "small", "photo", "of", "the", "nice"]
VOC = {w: i for i, w in enumerate(["<pad>", "<eos>"] + COLOURS + SHAPES + EXTRA)}
RGB = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [0, 1, 1], [1, .5, .7]])
MAX_LEN = 9
N_KINDS = len(COLOURS) * len(SHAPES)


def make_dataset(n, seed):
    r, g = random.Random(seed), torch.Generator().manual_seed(seed)
    images, captions = 0.5 * torch.rand(n, 3, 12, 12, generator=g), torch.zeros(n, MAX_LEN, dtype=torch.long)
    for i in range(n):
        c, s = divmod(i % N_KINDS, len(SHAPES))     # classes take turns
        stamp = torch.zeros(12, 12)
        if s == 0:
            stamp[5:7] = 1
        elif s == 1:
            stamp[:, 5:7] = 1
        elif s == 2:
            stamp[4:8, 4:8] = 1
        else:
            stamp[[0, -1]] = 1
            stamp[:, [0, -1]] = 1
        images[i] = images[i] * (1 - stamp) + RGB[c][:, None, None] * stamp
        words = r.sample(EXTRA, r.randint(0, 6)) + [COLOURS[c], SHAPES[s]]
        ids = [VOC[w] for w in words] + [VOC["<eos>"]]
        captions[i, :len(ids)] = torch.tensor(ids)
    return TensorDataset(images, captions)


class OneOfEachKind(Sampler):
    """Batches with every colour/shape pair exactly once, so that a batch holds no false negatives."""

    def __init__(self, n):
        self.per_kind = n // N_KINDS

    def __len__(self):
        return self.per_kind

    def __iter__(self):
        table = torch.stack([torch.randperm(self.per_kind) * N_KINDS + k for k in range(N_KINDS)], dim=1)
        for row in table:
            yield row[torch.randperm(N_KINDS)].tolist()


class ImageTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.GELU(),
                                 nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.GELU(), nn.Flatten(), nn.Linear(24 * 36, dim))

    def forward(self, x):
        return self.net(x)


class TextTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.tok = nn.Embedding(len(VOC), 32, padding_idx=0)
        self.pos = nn.Parameter(torch.randn(MAX_LEN, 32) * 0.02)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(32, dim)
        self.register_buffer("causal", torch.ones(MAX_LEN, MAX_LEN, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, ids):
        h = self.enc(self.tok(ids) + self.pos, mask=self.causal, src_key_padding_mask=ids == 0)
        eos = (ids == VOC["<eos>"]).int().argmax(dim=1)
        h = h[torch.arange(len(ids), device=ids.device), eos]  #! pool_last: h = h[:, -1]
        return self.out(h)


class LitCLIP(L.LightningModule):
    def __init__(self, dim=32, steps=100):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.image, self.text = ImageTower(dim), TextTower(dim)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))
        self.seen = []

    def clip_loss(self, batch):
        images, ids = batch
        a = F.normalize(self.image(images), dim=-1)  #! norm_batch: a = F.normalize(self.image(images), dim=0)
        b = F.normalize(self.text(ids), dim=-1)  #! norm_batch: b = F.normalize(self.text(ids), dim=0)
        logits = self.logit_scale.exp().clamp(max=50.0) * a @ b.t()
        target = torch.arange(len(logits), device=logits.device)
        return (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2

    def training_step(self, batch, batch_idx):
        opt_i, opt_t = self.optimizers()
        sch_i, sch_t = self.lr_schedulers()
        loss = self.clip_loss(batch)
        opt_i.zero_grad()  #! no_zero: pass
        opt_t.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(opt_i, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
        self.clip_gradients(opt_t, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
        opt_i.step()
        opt_t.step()
        sch_i.step()
        sch_t.step()
        self.seen.append(loss.item())

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.clip_loss(batch), on_epoch=True, prog_bar=False, batch_size=len(batch[0]))

    def configure_optimizers(self):
        opt_i = torch.optim.AdamW([{"params": self.image.parameters(), "weight_decay": 0.05},
                                   {"params": [self.logit_scale], "weight_decay": 0.0}], lr=2e-3)
        opt_t = torch.optim.AdamW(self.text.parameters(), lr=3e-3)  #! same_tower: opt_t = torch.optim.AdamW(self.image.parameters(), lr=3e-3)
        n = self.hparams.steps
        return [opt_i, opt_t], [torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=n) for o in (opt_i, opt_t)]


def train():
    L.seed_everything(11, verbose=False)
    data = make_dataset(18 * N_KINDS, seed=5)
    cut = 16 * N_KINDS
    train_set, val_set = Subset(data, range(cut)), Subset(data, range(cut, len(data)))
    train_dl = DataLoader(train_set, batch_sampler=OneOfEachKind(len(train_set)))
    val_dl = DataLoader(val_set, batch_size=N_KINDS)
    epochs = 7
    model = LitCLIP(steps=epochs * len(train_dl))
    with tempfile.TemporaryDirectory() as d:
        keep = ModelCheckpoint(dirpath=d, monitor="val_loss", mode="min", save_top_k=1)
        trainer = L.Trainer(max_epochs=epochs, accelerator="cpu", devices=1, logger=False, callbacks=[keep],
                            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
        trainer.fit(model, train_dl, val_dl)
        best = LitCLIP.load_from_checkpoint(keep.best_model_path).eval()
    with torch.no_grad():
        val = sum(best.clip_loss(b).item() for b in val_dl) / len(val_dl)
    print(f"loss {model.seen[0]:.3f} -> {model.seen[-1]:.3f}; best val {val:.3f}; scale {model.logit_scale.exp().item():.1f}")


WATCH = ()
