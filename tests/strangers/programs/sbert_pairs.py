"""Sentence embeddings from a small BERT trained with in-batch negatives (MultipleNegativesRankingLoss), masked mean pooling, and an EMA copy for the retrieval score.

fault pool_pad: DK303
fault temp_wrong: none
fault pairs_apart: none
fault graph_kept: DK601
"""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import BertConfig, BertModel

N_CONCEPTS, PAD, CLS = 32, 0, 1
GLUE = [f"glue{i}" for i in range(12)]
LEX = {"[PAD]": PAD, "[CLS]": CLS}
for tok in GLUE + [f"c{i}{v}" for i in range(N_CONCEPTS) for v in "ab"]:
    LEX[tok] = len(LEX)
TEMPERATURE = 0.07


def paraphrase(concepts, variant, r):
    words = [f"c{c}{variant}" for c in concepts] + r.choices(GLUE, k=r.randint(0, 7))
    r.shuffle(words)
    return [CLS] + [LEX[w] for w in words]


def build_pairs(n, r):
    """Every pair has its own set of three concepts, so there are no false negatives in a batch."""
    combos = set()
    while len(combos) < n:
        combos.add(tuple(sorted(r.sample(range(N_CONCEPTS), 3))))
    combos = sorted(combos)
    r.shuffle(combos)
    return [paraphrase(c, "a", r) for c in combos], [paraphrase(c, "b", r) for c in combos]


def pad(seqs):
    width = max(len(s) for s in seqs)
    ids = torch.zeros(len(seqs), width, dtype=torch.long)
    for i, s in enumerate(seqs):
        ids[i, :len(s)] = torch.as_tensor(s)
    return ids, (ids != PAD).long()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModel(BertConfig(vocab_size=len(LEX), hidden_size=48, num_hidden_layers=1, num_attention_heads=4,
                                         intermediate_size=96, max_position_embeddings=16), add_pooling_layer=False)

    def forward(self, ids, mask):
        h = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        m = mask.unsqueeze(-1).to(h.dtype)
        pooled = (h * m).sum(1) / m.sum(1).clamp(min=1)  #! pool_pad: pooled = h.mean(1)
        return F.normalize(pooled, dim=-1)


def mnr_loss(a, p):
    scores = a @ p.T / TEMPERATURE  #! temp_wrong: scores = a @ p.T * TEMPERATURE
    return F.cross_entropy(scores, torch.arange(len(a)))


@torch.no_grad()
def recall_at_1(model, queries, docs):
    model.eval()
    q, d = model(*pad(queries)), model(*pad(docs))
    hit = (q @ d.T).argmax(1).eq(torch.arange(len(q))).float().mean().item()
    model.train()
    return hit


def train():
    torch.manual_seed(4)
    r = random.Random(4)
    anchors, positives = build_pairs(704, r)
    val_a, val_p = anchors[:64], positives[:64]
    anchors, positives = anchors[64:], positives[64:]

    net = Encoder()
    ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.95), use_buffers=False)
    no_decay = [p for n, p in net.named_parameters() if n.endswith("bias") or "LayerNorm" in n]
    decay = [p for n, p in net.named_parameters() if not (n.endswith("bias") or "LayerNorm" in n)]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}], lr=3e-3)
    steps_per_epoch, epochs = len(anchors) // 32, 6
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=3e-3, total_steps=epochs * steps_per_epoch, pct_start=0.15)

    history = []
    print(f"before: R@1 {recall_at_1(net, val_a, val_p):.2f}")
    net.train()
    for epoch in range(epochs):
        perm = torch.randperm(len(anchors)).tolist()
        perm_pos = perm  #! pairs_apart: perm_pos = torch.randperm(len(positives)).tolist()
        for s in range(0, steps_per_epoch * 32, 32):
            a = net(*pad([anchors[i] for i in perm[s:s + 32]]))
            p = net(*pad([positives[i] for i in perm_pos[s:s + 32]]))
            loss = 0.5 * (mnr_loss(a, p) + mnr_loss(p, a))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            sched.step()
            ema.update_parameters(net)
            history.append(loss.detach())  #! graph_kept: history.append(loss)
        print(f"epoch {epoch} loss {torch.stack(history[-steps_per_epoch:]).mean().item():.3f}")
    print(f"loss {history[0].item():.3f} -> {history[-1].item():.3f}  R@1 {recall_at_1(net, val_a, val_p):.2f}"
          f"  EMA R@1 {recall_at_1(ema, val_a, val_p):.2f}")


WATCH = ()
