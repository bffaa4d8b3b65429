"""Instruction tuning of a small Llama with PEFT LoRA, Accelerate gradient accumulation and (reentrant) gradient checkpointing; the base is first pretrained for a moment on plain text.

fault pad_is_eos: DK323
fault opt_before_lora: DK101|DK103
fault no_accumulate: DK507
fault clip_before_backward: DK504
"""
import random

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

PAIRS = [("hot", "cold"), ("big", "small"), ("up", "down"), ("wet", "dry"), ("old", "young"), ("fast", "slow"),
         ("loud", "quiet"), ("rich", "poor"), ("full", "empty"), ("hard", "soft"), ("dark", "light"), ("open", "shut")]
WORDS = [w for p in PAIRS for w in p]
TOKENS = ["<pad>", "<s>", "</s>", "say", "opposite", "same", "please", "of", ":", "and", "is", "the", "now"] + WORDS
VOCAB = {t: i for i, t in enumerate(TOKENS)}
BOS_ID, EOS_ID = VOCAB["<s>"], VOCAB["</s>"]
PAD_ID = VOCAB["<pad>"]  #! pad_is_eos: PAD_ID = VOCAB["</s>"]
OPP = {**dict(PAIRS), **{b: a for a, b in PAIRS}}


def enc(s):
    return [VOCAB[w] for w in s.split()]


def make_examples(n, rng):
    rows = []
    for _ in range(n):
        k = rng.randint(1, 2)
        ws = rng.sample(WORDS, k)
        mode = rng.choice(["opposite", "same"])
        polite = rng.choice(["", "please ", "now please "])
        prompt = f"{polite}say the {mode} of {' and '.join(ws)} :"
        answer = " ".join(OPP[w] if mode == "opposite" else w for w in ws)
        rows.append((enc(prompt), enc(answer)))
    return rows


def collate(rows):
    seqs = [[BOS_ID] + p + a + [EOS_ID] for p, a in rows]
    width = max(map(len, seqs))
    ids = torch.tensor([s + [PAD_ID] * (width - len(s)) for s in seqs])
    labels = ids.clone()
    for i, (p, _) in enumerate(rows):
        labels[i, : 1 + len(p)] = -100           # loss on the answer only
    labels[ids == PAD_ID] = -100
    return {"input_ids": ids, "attention_mask": (ids != PAD_ID).long(), "labels": labels}


def pretrain_base(rng):
    """Plain text of the kind 'hot is cold and big is big' - gives the base some idea of the words."""
    cfg = LlamaConfig(vocab_size=len(VOCAB), hidden_size=48, intermediate_size=96, num_hidden_layers=2,
                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32, pad_token_id=0,
                      bos_token_id=BOS_ID, eos_token_id=EOS_ID)
    base = LlamaForCausalLM(cfg)
    opt = torch.optim.AdamW(base.parameters(), lr=4e-3)
    base.train()
    for _ in range(70):
        lines = []
        for _ in range(24):
            a, b, c = rng.sample(WORDS, 3)
            lines.append([BOS_ID] + enc(f"the {a} is {OPP[a]} and {b} is {OPP[b]} now {c} of {OPP[c]}") + [EOS_ID])
        ids = torch.tensor(lines)
        loss = base(input_ids=ids, labels=ids).loss
        opt.zero_grad()
        loss.backward()
        opt.step()
    return base


@torch.no_grad()
def val_loss(model, loader):
    model.eval()
    total = count = 0
    for batch in loader:
        n = (batch["labels"][:, 1:] != -100).sum().item()
        total += model(**batch).loss.item() * n
        count += n
    model.train()
    return total / count


def train():
    set_seed(5)
    rng = random.Random(5)
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
    base = pretrain_base(rng)

    rows = list({(tuple(p), tuple(a)): (p, a) for p, a in make_examples(1800, rng)}.values())
    held_out, rows = rows[:96], rows[96:608]
    loader = DataLoader(rows, batch_size=16, shuffle=True, collate_fn=collate, drop_last=True)
    val_loader = DataLoader(held_out, batch_size=48, collate_fn=collate)

    base.config.use_cache = False  #! opt_before_lora: base.config.use_cache = False; optimizer = torch.optim.AdamW(base.parameters(), lr=5e-3, weight_decay=0.0)
    model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, task_type="CAUSAL_LM",
                                            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"],
                                            modules_to_save=["lm_head"]))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model.enable_input_require_grads()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3, weight_decay=0.0)  #! opt_before_lora: pass
    epochs = 3
    updates = epochs * len(loader) // accelerator.gradient_accumulation_steps
    scheduler = get_cosine_schedule_with_warmup(optimizer, 5, updates)
    model, optimizer, loader, val_loader, scheduler = accelerator.prepare(model, optimizer, loader, val_loader, scheduler)

    losses = []
    model.train()
    for epoch in range(epochs):
        for batch in loader:
            with accelerator.accumulate(model):  #! no_accumulate: if True:
                loss = model(**batch).loss
                accelerator.backward(loss)  #! clip_before_backward: accelerator.clip_grad_norm_(model.parameters(), 1.0)
                if accelerator.sync_gradients:  #! clip_before_backward: if True:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)  #! clip_before_backward: accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        accelerator.print(f"epoch {epoch} val loss {val_loss(model, val_loader):.3f}")
    accelerator.print(f"train loss {losses[0]:.3f} -> {sum(losses[-5:]) / 5:.3f}")


WATCH = ()
