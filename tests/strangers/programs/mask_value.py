"""Pointer-like retriever: a question attends to memory slots of several lengths (padded), then picks an answer.

fault small_mask_value: DK303 at here
"""
import math
import torch, torch.nn as nn, torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, DataLoader

KEYS, VALUES, D = 20, 8, 48


class Facts(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(n):
            m = int(torch.randint(2, 9, (), generator=g))
            keys = torch.randperm(KEYS, generator=g)[:m] + 1
            values = torch.randint(VALUES, (m,), generator=g) + 1
            ask = int(torch.randint(m, (), generator=g))
            self.rows.append((keys, values, keys[ask], values[ask] - 1))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    keys, values, q, a = zip(*rows)
    keys = pad_sequence(keys, batch_first=True)
    values = pad_sequence(values, batch_first=True)
    return {"keys": keys, "values": values, "mask": (keys != 0).long(), "question": torch.stack(q), "answer": torch.stack(a)}


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.key_emb = nn.Embedding(KEYS + 1, D)
        self.val_emb = nn.Embedding(VALUES + 1, D)
        self.wq, self.wk, self.wv = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, D), nn.ReLU(), nn.Linear(D, VALUES))

    def forward(self, keys, values, mask, question):
        q = self.wq(self.key_emb(question)).unsqueeze(1)
        k = self.wk(self.key_emb(keys))
        v = self.wv(self.val_emb(values))
        scores = torch.matmul(q, k.transpose(1, 2)) / math.sqrt(D)
        scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9)  #! small_mask_value: scores = scores.masked_fill(mask.unsqueeze(1) == 0, 1e-9)
        read = torch.matmul(F.softmax(scores, dim=-1), v).squeeze(1)
        return self.mlp(read)


def evaluate(model, loader):
    model.eval()
    good = total = 0
    with torch.no_grad():
        for b in loader:
            answer = b.pop("answer")
            good += (model(**b).argmax(-1) == answer).sum().item()
            total += len(answer)
    model.train()
    return good / total


if __name__ == "__main__":
    torch.manual_seed(55)
    train = DataLoader(Facts(1920, 0), batch_size=32, shuffle=True, collate_fn=collate)
    test = DataLoader(Facts(256, 1), batch_size=64, collate_fn=collate)
    model = Memory()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        tot = 0
        for b in train:
            answer = b.pop("answer")
            loss = F.cross_entropy(model(**b), answer)
            opt.zero_grad(); loss.backward(); opt.step()
            tot += loss.item()
        print("epoch", epoch, "loss %.3f" % (tot / len(train)), "test %.3f" % evaluate(model, test))


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
