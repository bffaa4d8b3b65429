"""A BERT with a mean over the words of each row, padding left out.

fault mask_not_passed: DK303|DK315 at here|module:bert.encoder.layer.0.attention.self
"""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader
from transformers import BertConfig, BertModel

torch.manual_seed(0)


def collate(rows):
    n = max(len(r[0]) for r in rows)
    ids = torch.zeros(len(rows), n, dtype=torch.long)
    mask = torch.zeros(len(rows), n, dtype=torch.long)
    for i, (t, _) in enumerate(rows):
        ids[i, :len(t)] = t
        mask[i, :len(t)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([r[1] for r in rows])}


def corpus(n, low, high):
    rows = []
    for _ in range(n):
        ln = int(torch.randint(low, high, (1,)))
        y = int(torch.randint(0, 2, (1,)))
        p = torch.rand(ln) < (0.65 if y else 0.35)
        rows.append((torch.where(p, torch.randint(1, 25, (ln,)), torch.randint(25, 50, (ln,))), y))
    return rows


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        cfg = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                         max_position_embeddings=128)
        self.bert = BertModel(cfg, add_pooling_layer=False)
        self.head = nn.Linear(32, 2)

    def forward(self, input_ids, attention_mask, labels=None):
        h = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state  #! mask_not_passed: h = self.bert(input_ids).last_hidden_state
        m = attention_mask.unsqueeze(-1)
        pooled = (h * m).sum(1) / m.sum(1)  #! mask_not_passed: pooled = h.mean(1)
        return self.head(pooled)


def train():
    train = DataLoader(corpus(500, 10, 40), batch_size=16, shuffle=True, collate_fn=collate)
    short = corpus(100, 10, 14)
    model = Classifier()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(4):
        model.train()
        for b in train:
            y = b.pop("labels")
            loss = nn.functional.cross_entropy(model(**b), y)
            opt.zero_grad(); loss.backward(); opt.step()
        model.eval()
        with torch.no_grad():
            alone = torch.cat([model(**{k: v for k, v in collate([r]).items() if k != "labels"}) for r in short])
            long_row = (torch.ones(100, dtype=torch.long), 0)
            padded = torch.cat([model(**{k: v for k, v in collate([r, long_row]).items() if k != "labels"})[:1] for r in short])
        y = torch.tensor([r[1] for r in short])
        print(f"epoch {epoch} loss {loss.item():.3f} acc alone {(alone.argmax(1) == y).float().mean():.2f} "
              f"beside a long row {(padded.argmax(1) == y).float().mean():.2f}")


WATCH = ()
