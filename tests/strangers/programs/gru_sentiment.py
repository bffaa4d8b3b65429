"""A GRU classifies token sequences; a Trainer class, dict batches, padding by collate, packed sequences, a warm-up schedule.

fault softmax_head: DK308 at here
fault sgd_too_low: DK206|DK509 at here
fault integer_warmup: DK503|DK509 at "LambdaLR"
fault labels_one_class: DK307 at "def collate"
fault forgot_zero_grad: DK501 at "optimizer.step()"
"""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)

class Reviews(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            label = int(torch.randint(0, 2, (1,), generator=g))
            length = int(torch.randint(4, 12, (1,), generator=g))
            self.items.append((torch.randint(1 + 10 * label, 31 + 10 * label, (length,), generator=g), label))
    def __len__(self): return len(self.items)
    def __getitem__(self, i): return self.items[i]

def collate(items):
    tokens = nn.utils.rnn.pad_sequence([t for t, _ in items], batch_first=True)
    lengths = torch.tensor([len(t) for t, _ in items])
    labels = torch.tensor([y for _, y in items])  #! labels_one_class: labels = torch.tensor([items[0][1] * 0 for _ in items])
    return {"tokens": tokens, "lengths": lengths, "labels": labels}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(50, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 24, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(24, 2)
    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.emb(tokens), lengths, batch_first=True, enforce_sorted=False)
        _, h = self.rnn(packed)
        return self.out(self.drop(h[-1]))  #! softmax_head: return self.out(self.drop(h[-1])).softmax(-1)

class Trainer:
    def __init__(self, model, loader, epochs=8):
        self.model, self.loader, self.epochs = model, loader, epochs
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)  #! sgd_too_low: self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: min(1.0, (s + 1) / 10))  #! integer_warmup: self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: min(1, s // 100))
    def loss(self, batch):
        logits = self.model(batch["tokens"], batch["lengths"])
        return nn.functional.cross_entropy(logits, batch["labels"])
    def fit(self):
        for _ in range(self.epochs):
            self.model.train()
            for batch in self.loader:
                loss = self.loss(batch)
                self.optimizer.zero_grad()  #! forgot_zero_grad: pass
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.scheduler.step()

model = Net()
loader = DataLoader(Reviews(128, 1), batch_size=16, shuffle=True, collate_fn=collate)
trainer = Trainer(model, loader)
CHECK = lambda: dict(model=model, batch=next(iter(loader)), loss_fn=lambda m, b: trainer.loss(b), optimizer=trainer.optimizer, dataloader=loader)
WATCH = (model, trainer.optimizer)
train = trainer.fit
