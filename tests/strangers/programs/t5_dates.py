"""Seq2seq: a tiny T5 normalises written dates ("on 12 mar of 2021" -> "2021 m03 d12"), plain PyTorch loop with label smoothing and generate() scoring.

fault pad_in_loss: DK309
fault leaked_target: DK404|DK325
fault sched_per_epoch: DK503
fault dropout_eval: DK506|DK510
"""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import T5Config, T5ForConditionalGeneration, get_linear_schedule_with_warmup

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
YEARS = [str(y) for y in range(2008, 2024)]
DAYS = [f"d{d:02d}" for d in range(1, 29)]
OUT_MONTHS = [f"m{m:02d}" for m in range(1, 13)]
FILLER = "on the of in about since until signed dated".split()
SPECIAL = ["<pad>", "</s>"]
ITOS = SPECIAL + MONTHS + YEARS + DAYS + OUT_MONTHS + FILLER
STOI = {t: i for i, t in enumerate(ITOS)}
PAD, EOS = 0, 1


def sample(rng):
    day, month, year = rng.choice(DAYS), rng.randrange(12), rng.choice(YEARS)
    parts, target = [MONTHS[month], year], [year, OUT_MONTHS[month]]
    if rng.random() < 0.7:                       # a day isn't always given
        parts.append(day)
        target.append(day)
    rng.shuffle(parts)
    src = []
    for p in parts:
        src += rng.sample(FILLER, rng.randint(0, 2)) + [p]
    return [STOI[t] for t in src] + [EOS], [STOI[t] for t in target] + [EOS]


def pad_stack(seqs):
    n = max(map(len, seqs))
    return torch.tensor([s + [PAD] * (n - len(s)) for s in seqs])


def collate(batch):
    src = pad_stack([s for s, _ in batch])
    tgt = pad_stack([t for _, t in batch])
    labels = tgt.masked_fill(tgt == PAD, -100)  #! pad_in_loss: labels = tgt
    return src, (src != PAD).long(), labels


def forward_logits(model, src, mask, labels):
    dec_in = model.prepare_decoder_input_ids_from_labels(labels)  #! leaked_target: dec_in = labels.clamp(min=0)
    return model(input_ids=src, attention_mask=mask, decoder_input_ids=dec_in).logits


@torch.no_grad()
def evaluate(model, loader):
    was_training = model.training
    model.eval()  #! dropout_eval: pass
    ce = nn.CrossEntropyLoss(ignore_index=-100, reduction="sum")
    total, tokens, exact, n = 0.0, 0, 0, 0
    for src, mask, labels in loader:
        logits = forward_logits(model, src, mask, labels)
        total += ce(logits.flatten(0, 1), labels.flatten()).item()
        tokens += (labels != -100).sum().item()
        out = model.generate(input_ids=src, attention_mask=mask, max_new_tokens=5, do_sample=False)
        for hyp, ref in zip(out.tolist(), labels.tolist()):
            hyp = [t for t in hyp if t not in (PAD, EOS)]
            ref = [t for t in ref if t not in (-100, PAD, EOS)]
            exact += hyp == ref
            n += 1
    model.train(was_training)
    return total / tokens, exact / n


def train():
    torch.manual_seed(0)
    rng = random.Random(0)
    pool = {}
    while len(pool) < 832:                       # unique by source text, so that the split is clean
        s, t = sample(rng)
        pool[tuple(s)] = (s, t)
    pool = list(pool.values())
    train_data, dev_data = pool[:768], pool[768:]
    train_loader = DataLoader(train_data, batch_size=32, shuffle=True, collate_fn=collate, drop_last=True)
    dev_loader = DataLoader(dev_data, batch_size=64, collate_fn=collate)

    cfg = T5Config(vocab_size=len(ITOS), d_model=48, d_kv=12, d_ff=96, num_layers=2, num_decoder_layers=2,
                   num_heads=4, dropout_rate=0.1, pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD,
                   relative_attention_num_buckets=8)
    model = T5ForConditionalGeneration(cfg)
    epochs = 7
    opt = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.0)
    sched = get_linear_schedule_with_warmup(opt, num_warmup_steps=15, num_training_steps=epochs * len(train_loader))
    criterion = nn.CrossEntropyLoss(ignore_index=-100, label_smoothing=0.1)

    history = []
    model.train()
    for epoch in range(epochs):
        for src, mask, labels in train_loader:
            logits = forward_logits(model, src, mask, labels)
            loss = criterion(logits.reshape(-1, logits.size(-1)), labels.reshape(-1))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()  #! sched_per_epoch: pass
            opt.zero_grad(set_to_none=True)
            history.append(loss.item())
        pass  #! sched_per_epoch: sched.step()
        if epoch in (3, epochs - 1):
            dev_loss, em = evaluate(model, dev_loader)
            print(f"epoch {epoch}: train {history[-1]:.3f}  dev nll {dev_loss:.3f}  exact match {em:.2f}")
    print(f"loss {history[0]:.3f} -> {history[-1]:.3f}")


WATCH = ()
