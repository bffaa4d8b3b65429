"""Whisper (tiny, random weights): spoken "digits" as tones -> text. Encoder is frozen after warm-up epoch one, unfrozen at the end (gradual). bf16 autocast."""
import random
import numpy as np, torch
from torch.utils.data import Dataset, DataLoader
from transformers import WhisperConfig, WhisperForConditionalGeneration

SEED = 3
random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED)
PAD, SOT, EOT = 0, 1, 2
MELS, FRAMES = 16, 60

class Tones(Dataset):
    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.items = [self.one() for _ in range(n)]
    def one(self):
        k = self.rng.integers(2, 5)
        digits = self.rng.integers(0, 10, k)
        mel = self.rng.normal(0, .3, (MELS, FRAMES)).astype("float32") - 0.5
        for j, d in enumerate(digits):
            a = j * 14 + self.rng.integers(0, 3)
            mel[d + 2:d + 5, a:a + 10] += 2.0
        return mel, [int(d) + 3 for d in digits] + [EOT]
    def __len__(self): return len(self.items)
    def __getitem__(self, i): return self.items[i]

def collate(rows):
    n = max(len(r[1]) for r in rows)
    lab = torch.full((len(rows), n), -100)
    for i, (_, t) in enumerate(rows):
        lab[i, :len(t)] = torch.tensor(t)
    return {"input_features": torch.from_numpy(np.stack([r[0] for r in rows])), "labels": lab}

cfg = WhisperConfig(vocab_size=16, num_mel_bins=MELS, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                    encoder_ffn_dim=96, decoder_ffn_dim=96, max_source_positions=FRAMES // 2, max_target_positions=16,
                    pad_token_id=PAD, bos_token_id=SOT, eos_token_id=EOT, decoder_start_token_id=SOT, suppress_tokens=None, begin_suppress_tokens=None)
model = WhisperForConditionalGeneration(cfg)
train = DataLoader(Tones(256, 0), 16, shuffle=True, collate_fn=collate, drop_last=True)
val = DataLoader(Tones(64, 1), 32, collate_fn=collate)
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3, weight_decay=0.01)

def freeze_encoder(flag):
    for n, p in model.model.encoder.named_parameters():
        if "embed_positions" not in n:          # Whisper's sinusoids are never trained
            p.requires_grad = not flag

for epoch in range(6):
    freeze_encoder(epoch in (2, 3))
    model.train()
    for b in train:
        with torch.autocast("cpu", torch.bfloat16):
            out = model(**b)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
    model.eval()
    tot = hit = 0
    with torch.inference_mode():
        vl = 0.
        for b in val:
            o = model(**b)
            vl += o.loss.item()
            m = b["labels"] != -100
            hit += ((o.logits.argmax(-1) == b["labels"]) & m).sum().item(); tot += m.sum().item()
    print(f"epoch {epoch} train {out.loss.item():.3f} val {vl / len(val):.3f} acc {hit / tot:.3f}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
