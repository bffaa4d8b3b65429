"""TimeSformer clip classifier with HF Trainer: WeightedRandomSampler by overriding _get_train_sampler, early-unfreeze callback, class weights, bf16."""
import os, tempfile, numpy as np, torch, transformers
from torch.utils.data import Dataset, WeightedRandomSampler
from transformers import TimesformerConfig, TimesformerForVideoClassification, Trainer, TrainingArguments, TrainerCallback
transformers.logging.set_verbosity_error()

class Clips(Dataset):
    def __init__(self, n, seed, weights=(0.6, 0.3, 0.1)):
        r = np.random.default_rng(seed)
        self.y = r.choice(3, n, p=weights); self.x = []
        for y in self.y:
            v = r.normal(0, 0.2, (4, 3, 16, 16)).astype("float32"); x0 = r.integers(2, 8)
            for t in range(4):
                x = x0 + (0, 2 * t - 3, 3 - 2 * t)[y]
                v[t, :, 5:10, max(0, x):x + 5] += 1.5
            self.x.append(v)
    def __len__(self): return len(self.y)
    def __getitem__(self, i): return {"pixel_values": torch.from_numpy(self.x[i]), "labels": int(self.y[i])}

class Balanced(Trainer):
    def _get_train_sampler(self, dataset=None):
        y = self.train_dataset.y
        w = 1.0 / np.bincount(y)[y]
        return WeightedRandomSampler(torch.as_tensor(w, dtype=torch.double), len(y), replacement=True, generator=torch.Generator().manual_seed(0))

class Unfreeze(TrainerCallback):
    """the patch embedding and first block stay frozen during the first two epochs"""
    def __init__(self, parts): self.parts = parts
    def on_train_begin(self, args, state, control, **kw):
        for m in self.parts: m.requires_grad_(False)
    def on_epoch_begin(self, args, state, control, **kw):
        if state.epoch >= 2:
            for m in self.parts: m.requires_grad_(True)

def metrics(p):
    pred = p.predictions.argmax(-1)
    return {"acc": float((pred == p.label_ids).mean()), "macro": float(np.mean([(pred[p.label_ids == c] == c).mean() for c in range(3)]))}

transformers.set_seed(0)
cfg = TimesformerConfig(image_size=16, patch_size=4, num_frames=4, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, num_labels=3,
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model = TimesformerForVideoClassification(cfg)
train, val = Clips(320, 0), Clips(96, 1, (0.34, 0.33, 0.33))
with tempfile.TemporaryDirectory() as d:
    args = TrainingArguments(d, per_device_train_batch_size=16, per_device_eval_batch_size=32, num_train_epochs=6, learning_rate=2e-3, weight_decay=0.01, warmup_steps=10,
                             lr_scheduler_type="cosine", bf16=True, use_cpu=True, eval_strategy="epoch", save_strategy="no", logging_steps=20, report_to=[], disable_tqdm=True)
    t = Balanced(model, args, train_dataset=train, eval_dataset=val, compute_metrics=metrics, callbacks=[Unfreeze([model.timesformer.embeddings.patch_embeddings, model.timesformer.encoder.layer[0]])])
    t.train()
    print({k: round(v, 3) for k, v in t.evaluate().items() if "acc" in k or "macro" in k or "loss" in k})


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
