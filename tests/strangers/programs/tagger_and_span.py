"""Multi-task fine-tuning: one shared BERT encoder with a token-classification head (subword label alignment) and an extractive start/end head, batches from a length-bucketing sampler.

fault word_labels: none
fault pad_tagged: DK309
fault head_missing: DK101
fault buckets_in_order: DK703
"""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import BertConfig, BertModel

TAGS = ["O", "PER", "LOC"]
IGNORE = -100
TAG_PAD = IGNORE  #! pad_tagged: TAG_PAD = 0
SYL = [c + v for c in "bdfgklmnprst" for v in "aeio"]
PEOPLE = [a + b + "son" for a, b in zip(SYL[:20], SYL[20:40])]
PLACES = [a + b + "burg" for a, b in zip(SYL[5:25], SYL[25:45])]
PLAIN = [f"{a}{b}" for a, b in zip(SYL[8:40], SYL[3:35])]


class PieceTokenizer:
    """Splits words greedily in two-letter pieces; inner pieces carry '##'."""

    def __init__(self, words):
        self.vocab = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2}
        for w in words:
            for p in self.split(w):
                self.vocab.setdefault(p, len(self.vocab))

    @staticmethod
    def split(word):
        cut = [word[i:i + 2] for i in range(0, len(word), 2)]
        return [cut[0]] + ["##" + c for c in cut[1:]]

    def encode_word(self, word):
        return [self.vocab[p] for p in self.split(word)]


def encode(words, tags, tok):
    ids, labels, start, end = [1], [IGNORE], 0, 0
    for word, tag in zip(words, tags):
        pieces = tok.encode_word(word)
        if tag == 2:                             # exactly one place in each sentence: the answer span
            start, end = len(ids), len(ids) + len(pieces) - 1
        ids.extend(pieces)
        labels.extend([tag] + [IGNORE] * (len(pieces) - 1))  #! word_labels: labels.append(tag)
    return {"ids": ids + [2], "tags": labels + [IGNORE], "span": (start, end)}


class Sentences(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class BucketSampler(Sampler):
    def __init__(self, lengths, batch_size, seed):
        self.lengths, self.bs, self.rng = lengths, batch_size, random.Random(seed)

    def __len__(self):
        return (len(self.lengths) + self.bs - 1) // self.bs

    def __iter__(self):
        idx = sorted(range(len(self.lengths)), key=lambda i: (self.lengths[i], self.rng.random()))  #! buckets_in_order: idx = sorted(range(len(self.lengths)), key=lambda i: self.lengths[i])
        batches = [idx[i:i + self.bs] for i in range(0, len(idx), self.bs)]
        self.rng.shuffle(batches)  #! buckets_in_order: pass
        yield from batches


def collate(rows):
    w = max(len(r["ids"]) for r in rows)
    fill = lambda xs, v: xs + [v] * (w - len(xs))
    return {"ids": torch.tensor([fill(r["ids"], 0) for r in rows]),
            "mask": torch.tensor([fill([1] * len(r["ids"]), 0) for r in rows]),
            "tags": torch.tensor([fill(r["tags"], TAG_PAD) for r in rows]),
            "span": torch.tensor([r["span"] for r in rows])}


class TwoHeads(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.encoder = BertModel(BertConfig(vocab_size=vocab_size, hidden_size=48, num_hidden_layers=2, hidden_dropout_prob=0.05, num_attention_heads=4,
                                            intermediate_size=96, max_position_embeddings=64), add_pooling_layer=False)
        self.tagger, self.span = nn.Linear(48, len(TAGS)), nn.Linear(48, 2)
        self.ce = nn.CrossEntropyLoss(ignore_index=IGNORE)

    def forward(self, b):
        h = self.encoder(input_ids=b["ids"], attention_mask=b["mask"]).last_hidden_state
        tag_logits = self.tagger(h)
        span_logits = self.span(h).masked_fill(b["mask"].unsqueeze(-1) == 0, -1e4)
        loss_tag = self.ce(tag_logits.flatten(0, 1), b["tags"].flatten())
        loss_span = (self.ce(span_logits[..., 0], b["span"][:, 0]) + self.ce(span_logits[..., 1], b["span"][:, 1])) / 2
        return loss_tag, loss_span, tag_logits, span_logits


def train():
    torch.manual_seed(2)
    rng = random.Random(2)
    tok = PieceTokenizer(PEOPLE + PLACES + PLAIN)
    rows, seen = [], set()
    while len(rows) < 560:
        pairs = [(rng.choice(PLAIN), 0) for _ in range(rng.randint(2, 8))]
        pairs += [(rng.choice(PEOPLE), 1) for _ in range(rng.randint(0, 2))] + [(rng.choice(PLACES), 2)]
        rng.shuffle(pairs)
        if tuple(pairs) not in seen:
            seen.add(tuple(pairs))
            rows.append(encode(*zip(*pairs), tok))
    train_set, val_set = Sentences(rows[80:]), Sentences(rows[:80])
    train_loader = DataLoader(train_set, collate_fn=collate,
                              batch_sampler=BucketSampler([len(r["ids"]) for r in train_set.rows], 24, seed=9))
    val_loader = DataLoader(val_set, batch_size=40, collate_fn=collate)

    model = TwoHeads(len(tok.vocab))
    heads = list(model.tagger.parameters()) + list(model.span.parameters())  #! head_missing: heads = list(model.tagger.parameters())
    opt = torch.optim.AdamW([{"params": model.encoder.parameters(), "lr": 3e-3}, {"params": heads, "lr": 4e-3}])
    epochs = 10
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=epochs * len(train_loader))
    curve = []
    for epoch in range(epochs):
        model.train()
        for b in train_loader:
            loss_tag, loss_span, _, _ = model(b)
            loss = loss_tag + 0.5 * loss_span
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            curve.append(loss.item())
        model.eval()
        hit = n = exact = 0
        with torch.no_grad():
            for b in val_loader:
                _, _, tl, sl = model(b)
                keep = b["tags"] != IGNORE
                hit += (tl.argmax(-1)[keep] == b["tags"][keep]).sum().item()
                n += keep.sum().item()
                exact += (sl.argmax(1) == b["span"]).all(1).sum().item()
    print(f"loss {curve[0]:.3f} -> {curve[-1]:.3f}; tag acc {hit / n:.3f}, span exact {exact / len(val_set):.3f}")


WATCH = ()
