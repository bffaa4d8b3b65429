"""Wav2Vec2 CTC: backbone random-initialised and frozen feature encoder, LoRA by peft on attention with lm_head saved fully; raw audio tones."""
import warnings; warnings.filterwarnings("ignore")
import numpy as np, torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC, get_linear_schedule_with_warmup
from peft import LoraConfig, get_peft_model

torch.manual_seed(0); rng = np.random.default_rng(0)
FREQ = [300, 600, 900, 1300, 1800]
def clip_():
    k = rng.integers(2, 5); digits = rng.integers(0, 5, k); parts = []
    for d in digits:
        n = rng.integers(500, 700); t = np.arange(n) / 4000
        parts += [np.sin(2 * np.pi * FREQ[d] * t + rng.uniform(0, 6)), np.zeros(rng.integers(80, 160))]
    w = np.concatenate(parts) + rng.normal(0, 0.02, sum(map(len, parts)))
    w = (w - w.mean()) / (w.std() + 1e-7)
    return w.astype("float32"), digits + 1

def collate(rows):
    n = max(len(w) for w, _ in rows); m = max(len(d) for _, d in rows)
    x, mask, lab = torch.zeros(len(rows), n), torch.zeros(len(rows), n, dtype=torch.long), torch.full((len(rows), m), -100)
    for i, (w, d) in enumerate(rows):
        x[i, :len(w)] = torch.from_numpy(w); mask[i, :len(w)] = 1; lab[i, :len(d)] = torch.from_numpy(d)
    return dict(input_values=x, attention_mask=mask, labels=lab)

cfg = Wav2Vec2Config(vocab_size=6, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, conv_dim=(24, 24, 24),
                     conv_stride=(5, 4, 4), conv_kernel=(10, 8, 4), num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, feat_extract_norm="layer",
                     do_stable_layer_norm=True, mask_time_prob=0.0, layerdrop=0.0, pad_token_id=0, ctc_loss_reduction="mean", ctc_zero_infinity=True,
                     hidden_dropout=0.0, attention_dropout=0.0, feat_proj_dropout=0.0, final_dropout=0.0, activation_dropout=0.0)
base = Wav2Vec2ForCTC(cfg)
train = [clip_() for _ in range(160)]
loader = torch.utils.data.DataLoader(train, 16, shuffle=True, collate_fn=collate)

# 1. a short full training (the "pre-trained" checkpoint)
opt = torch.optim.AdamW(base.parameters(), 2e-3, weight_decay=0.0)
base.train()
for ep in range(4):
    for b in loader:
        loss = base(**b).loss
        opt.zero_grad(); loss.backward()
        torch.nn.utils.clip_grad_norm_(base.parameters(), 1.0); opt.step()
    print("pre", ep, round(loss.item(), 3))

# 2. adapters
peft = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], modules_to_save=["lm_head"], lora_dropout=0.05))
trainable = [p for p in peft.parameters() if p.requires_grad]
opt = torch.optim.AdamW(trainable, 3e-3)
sched = get_linear_schedule_with_warmup(opt, 5, 6 * len(loader))
peft.train()
for ep in range(6):
    for b in loader:
        loss = peft(**b).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        opt.step(); sched.step(); opt.zero_grad()
    print("lora", ep, round(loss.item(), 3))
peft.eval()
with torch.no_grad():
    b = collate(train[:8]); print(peft(b["input_values"], attention_mask=b["attention_mask"]).logits.argmax(-1)[0].tolist()[:20])


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
