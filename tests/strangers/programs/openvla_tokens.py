"""OpenVLA-like policy: CLIP patches are spliced into the prompt of a small Llama, which answers with discrete action tokens.

fault prompt_labels: none
fault double_shift: DK314
fault raw_bins: DK405|DK310
fault sched_order: DK503
"""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

IGNORE = -100
WORDS = ["<pad>", "<bos>", "<eos>", "In:", "What", "action", "should", "the", "robot", "take", "to", "pick", "up", "cup", "?", "Out:"]
N_BINS = 32
ACT0 = len(WORDS)  # the last N_BINS tokens are the action tokens
PROMPT = [WORDS.index(w) for w in "In: What action should the robot take to pick up the cup ? Out:".split()]


def parse_args(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--n", type=int, default=640)
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--warmup-ratio", type=float, default=0.1)
    return ap.parse_args(argv if argv is not None else [])


class ActionTokenizer:
    """Uniform bins over [-1, 1] after a 1%..99% quantile normalisation."""

    def __init__(self, train_actions):
        self.low = torch.quantile(train_actions, 0.01, dim=0)
        self.high = torch.quantile(train_actions, 0.99, dim=0)
        self.edges = torch.linspace(-1, 1, N_BINS + 1)
        self.centers = (self.edges[:-1] + self.edges[1:]) / 2

    def encode(self, a):
        x = 2 * (a - self.low) / (self.high - self.low) - 1  #! raw_bins: x = a
        return torch.bucketize(x.clamp(-1, 1), self.edges[1:-1]) + ACT0

    def decode(self, tokens):
        x = self.centers[(tokens - ACT0).clamp(0, N_BINS - 1)]
        return (x + 1) / 2 * (self.high - self.low) + self.low


def make_demos(n):
    """A cup (bright square) somewhere in a 32x32 picture; action = (dx, dy, gripper) in mm from the centre."""
    xy = torch.randint(0, 4, (n, 2)) * 8
    img = 0.1 * torch.rand(n, 3, 32, 32)
    for k, (x, y) in enumerate(xy.tolist()):
        img[k, :, y:y + 8, x:x + 8] += 0.8
    delta = (xy.float() + 4 - 16) * 10
    grip = 40 - delta.norm(dim=-1, keepdim=True) / 5
    return img, torch.cat([delta, grip], -1) + torch.randn(n, 3)


class VLA(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.vision = CLIPVisionModel(CLIPVisionConfig(hidden_size=d, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8, attention_dropout=0.0))
        nn.init.normal_(self.vision.embeddings.position_embedding.weight, std=0.5)  # the default 0.02 drowns in the patch embeddings
        self.vision.post_layernorm.requires_grad_(False)  # belongs to the pooled output, which is not used here
        self.projector = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))
        cfg = LlamaConfig(vocab_size=ACT0 + N_BINS, hidden_size=d, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True, initializer_range=0.1)
        self.llm = LlamaForCausalLM(cfg)

    def splice(self, pixels, ids):
        """[bos, patches, rest of the text] as embeddings."""
        patches = self.projector(self.vision(pixel_values=pixels).last_hidden_state[:, 1:])
        text = self.llm.get_input_embeddings()(ids)
        return torch.cat([text[:, :1], patches, text[:, 1:]], 1), patches.shape[1]

    def forward(self, pixels, ids, labels):
        emb, n_img = self.splice(pixels, ids)
        image_labels = labels.new_full((len(labels), n_img), IGNORE)
        labels = torch.cat([labels[:, :1], image_labels, labels[:, 1:]], 1)
        mask = torch.ones(emb.shape[:2], dtype=torch.long)
        return self.llm(inputs_embeds=emb, attention_mask=mask, labels=labels)

    @torch.no_grad()
    def predict(self, pixels, n_tokens):
        ids = torch.tensor([[1] + PROMPT]).expand(len(pixels), -1)
        for _ in range(n_tokens):
            emb, _ = self.splice(pixels, ids)
            logits = self.llm(inputs_embeds=emb).logits[:, -1]
            logits[:, :ACT0] = -float("inf")
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
        return ids[:, -n_tokens:]


def collate(tok):
    prompt = torch.tensor([1] + PROMPT)

    def fn(rows):
        pixels = (torch.stack([r[0] for r in rows]) - 0.5) / 0.25
        answers = tok.encode(torch.stack([r[1] for r in rows]))
        eos = torch.full((len(rows), 1), 2)
        ids = torch.cat([prompt.expand(len(rows), -1), answers, eos], 1)
        labels = ids.clone()
        labels[:, : len(prompt)] = IGNORE  #! prompt_labels: pass
        labels = labels.contiguous()  #! double_shift: labels = torch.cat([labels[:, 1:], torch.full((len(rows), 1), IGNORE)], 1)
        return {"pixels": pixels, "ids": ids, "labels": labels}, torch.stack([r[1] for r in rows])

    return fn


def evaluate(model, loader, tok):
    model.eval()
    err, n = 0.0, 0
    for batch, actions in loader:
        err += (tok.decode(model.predict(batch["pixels"], 3)) - actions).abs().sum().item()
        n += actions.numel()
    model.train()
    return err / n


def main(args):
    random.seed(args.seed), np.random.seed(args.seed), torch.manual_seed(args.seed)
    train_set, val_set = random_split(TensorDataset(*make_demos(args.n)), [0.9, 0.1], generator=torch.Generator().manual_seed(args.seed))
    tok = ActionTokenizer(torch.stack([train_set[i][1] for i in range(len(train_set))]))
    train_dl = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True, collate_fn=collate(tok))
    val_dl = DataLoader(val_set, 64, collate_fn=collate(tok))
    model = VLA()
    no_decay = [p for p in model.parameters() if p.requires_grad and p.ndim < 2]
    decay = [p for p in model.parameters() if p.requires_grad and p.ndim >= 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}], lr=args.lr)
    total = args.epochs * len(train_dl)
    sched = get_cosine_schedule_with_warmup(opt, int(args.warmup_ratio * total), total)
    for epoch in range(args.epochs):
        running = 0.0
        for step, (batch, _) in enumerate(train_dl):
            opt.zero_grad()
            out = model(**batch)
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()  #! sched_order: sched.step() if step == len(train_dl) - 1 else None
            running += out.loss.item()
            if epoch == 0 and step == 0:
                print(f"first loss {out.loss.item():.3f}")
        print(f"epoch {epoch} train loss {running / len(train_dl):.3f} val mae {evaluate(model, val_dl, tok):.1f} mm lr {sched.get_last_lr()[0]:.2e}")


def train():
    main(parse_args())


WATCH = ()
