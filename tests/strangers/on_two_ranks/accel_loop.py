"""Sequence tagging with a GRU in an accelerate loop: accumulate() over two micro-batches,
clipping only on synchronising steps, metrics through gather_for_metrics.

fault unprepared_loader: DK806|DK805 at "model("
    The training loader is not prepared, so every rank sees all the data.
fault eval_never_undone: DK505 at ".eval()"
    The model is put in train mode once before the loop only, and stays in eval mode after the first validation.
fault zero_grad_every_micro: DK512
    Gradients are cleared on the raw optimizer before each backward, so accumulation keeps only the last micro-batch.
"""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LENGTH, SYMBOLS = 12, 10


def make_split(n, seed):
    """Tag of a symbol: is it larger than the one before it (0 at the first place)."""
    g = torch.Generator().manual_seed(seed)
    seq = torch.randint(1, SYMBOLS + 1, (n, LENGTH), generator=g)
    lengths = torch.randint(5, LENGTH + 1, (n,), generator=g)
    tags = torch.zeros_like(seq)
    tags[:, 1:] = (seq[:, 1:] > seq[:, :-1]).long()
    pad = torch.arange(LENGTH)[None] >= lengths[:, None]
    return TensorDataset(seq.masked_fill(pad, 0), tags.masked_fill(pad, -100))


class Tagger(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.emb = nn.Embedding(SYMBOLS + 1, dim, padding_idx=0)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(dim, 2)

    def forward(self, ids):
        h, _ = self.rnn(self.drop(self.emb(ids)))
        return self.out(self.drop(h))


def run_validation(accelerator, model, loader):
    model.eval()
    hits = total = 0
    for ids, tags in loader:
        with torch.no_grad():
            guess = model(ids).argmax(-1)
        guess, tags = accelerator.gather_for_metrics((guess, tags))
        mask = tags != -100
        hits += (guess[mask] == tags[mask]).sum().item()
        total += mask.sum().item()
    return hits / total


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(99)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=0.01)
    shuffle_gen = torch.Generator().manual_seed(99)
    train_dl = DataLoader(make_split(768, 0), batch_size=24, shuffle=True, drop_last=True, generator=shuffle_gen)
    valid_dl = DataLoader(make_split(203, 1), batch_size=32)
    epochs = 5
    model, optimizer, valid_dl = accelerator.prepare(model, optimizer, valid_dl)
    train_dl = accelerator.prepare(train_dl)  #! unprepared_loader: pass
    set_seed(99, device_specific=True)  # dropout differs between ranks

    for epoch in range(epochs):
        model.train()  #! eval_never_undone: if epoch == 0: model.train()
        loss_sum, batches = torch.zeros(()), 0
        for ids, tags in train_dl:
            with accelerator.accumulate(model):
                logits = model(ids)
                loss = F.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=-100)
                accelerator.backward(loss)  #! zero_grad_every_micro: optimizer.optimizer.zero_grad(); accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            loss_sum += loss.detach()
            batches += 1
        mean_loss = accelerator.reduce(loss_sum / batches, reduction="mean").item()
        acc = run_validation(accelerator, model, valid_dl)
        accelerator.print(f"epoch {epoch} loss {mean_loss:.4f} token acc {acc:.4f}", flush=True)

    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
