"""SegFormer with accelerate: gradient accumulation 2, focal + Lovasz-free Dice, EMA, ignore label 255, bucketed sizes by a batch sampler, bf16."""
import copy, random, numpy as np, torch, torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import Dataset, DataLoader, Sampler
from transformers import SegformerConfig, SegformerForSemanticSegmentation

class Shapes(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed
    def size(self, i): return 32 if i % 2 else 48
    def __len__(self): return self.n
    def __getitem__(self, i):
        r = np.random.default_rng(self.seed * 100003 + i); s = self.size(i)
        im = r.normal(0, 0.3, (3, s, s)).astype("float32"); y = np.zeros((s, s), np.int64)
        for c in (1, 2):
            a, b = r.integers(2, s - 14, 2)
            im[c - 1, a:a + 12, b:b + 12] += 1.5; y[a:a + 12, b:b + 12] = c
            if c == 2: im[0, a:a + 12, b:b + 12] -= 1.0
        y[:2], y[-2:] = 255, 255
        return {"pixel_values": torch.from_numpy(im), "labels": torch.from_numpy(y)}

class Buckets(Sampler):
    def __init__(self, data, bs, seed=0): self.data, self.bs, self.rng = data, bs, random.Random(seed)
    def __len__(self): return len(self.data) // self.bs
    def __iter__(self):
        by = {}
        for i in range(len(self.data)): by.setdefault(self.data.size(i), []).append(i)
        out = []
        for ids in by.values():
            self.rng.shuffle(ids); out += [ids[k:k + self.bs] for k in range(0, len(ids) - self.bs + 1, self.bs)]
        self.rng.shuffle(out)
        return iter(out)

def loss_fn(logits, y):
    logits = F.interpolate(logits.float(), size=y.shape[-2:], mode="bilinear", align_corners=False)
    ce = F.cross_entropy(logits, y, ignore_index=255, reduction="none")
    keep = (y != 255).float()
    focal = ((1 - torch.exp(-ce)) ** 2 * ce).sum() / keep.sum()
    p = logits.softmax(1)[:, 1:] * keep[:, None]
    t = F.one_hot(y.masked_fill(y == 255, 0), 3).permute(0, 3, 1, 2)[:, 1:].float() * keep[:, None]
    dice = 1 - (2 * (p * t).sum((0, 2, 3)) + 1) / (p.sum((0, 2, 3)) + t.sum((0, 2, 3)) + 1)
    return focal + dice.mean()

def main():
    set_seed(0)
    acc = Accelerator(gradient_accumulation_steps=2, mixed_precision="bf16", cpu=True)
    data = Shapes(128, 1)
    loader = DataLoader(data, batch_sampler=Buckets(data, 8))
    cfg = SegformerConfig(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32], patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2],
                          decoder_hidden_size=32, num_labels=3, classifier_dropout_prob=0.0, drop_path_rate=0.05)
    model = SegformerForSemanticSegmentation(cfg)
    ema = copy.deepcopy(model).eval().requires_grad_(False)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 8 * len(loader) // 2)
    model, opt, loader, sched = acc.prepare(model, opt, loader, sched)
    test = torch.utils.data.default_collate([Shapes(32, 2)[i] for i in range(0, 32, 2)])
    for epoch in range(8):
        model.train()
        for b in loader:
            with acc.accumulate(model):
                loss = loss_fn(model(pixel_values=b["pixel_values"]).logits, b["labels"])
                acc.backward(loss)
                if acc.sync_gradients: acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step(); sched.step(); opt.zero_grad()
            if acc.sync_gradients:
                with torch.no_grad():
                    src = acc.unwrap_model(model).state_dict()
                    for k, v in ema.state_dict().items():
                        v.lerp_(src[k], 0.1) if v.is_floating_point() else v.copy_(src[k])
        with torch.no_grad():
            pred = F.interpolate(ema(test["pixel_values"]).logits, size=(48, 48), mode="bilinear").argmax(1); y = test["labels"]; ok = y != 255
            iou = [((pred == c) & (y == c) & ok).sum() / (((pred == c) | (y == c)) & ok).sum() for c in range(3)]
        acc.print(epoch, f"{loss.item():.3f} ema mIoU {torch.stack(iou).mean():.3f}")
main()


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
