"""Masked language modelling with dynamic masking over a streaming IterableDataset; the run is cut in two and resumed from a checkpoint with optimizer, scheduler, RNG state and stream position.

fault alias_labels: none
fault strict_false: DK118
fault opt_not_restored: DK511
fault specials_masked: none
"""
import itertools
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import BertConfig, BertForMaskedLM

SPECIALS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
PAD, CLS, SEP, MASK = range(4)
SUBJ = "cook pilot nurse farmer".split()
VERB = {"cook": "fries", "pilot": "flies", "nurse": "heals", "farmer": "plants"}
OBJ = {"fries": "eggs", "flies": "planes", "heals": "people", "plants": "corn"}
TIME = "today yesterday often never".split()
TOKENS = SPECIALS + ["the", "and"] + SUBJ + list(OBJ) + list(OBJ.values()) + TIME
IDX = {t: i for i, t in enumerate(TOKENS)}


class SentenceStream(IterableDataset):
    """Sentences without end. `skip` fast-forwards the stream on resume; train and dev streams differ in their seed."""

    def __init__(self, seed, skip=0):
        self.seed, self.skip = seed, skip

    def generate(self):
        g = torch.Generator().manual_seed(self.seed)
        pick = lambda xs: xs[torch.randint(len(xs), (1,), generator=g).item()]
        while True:
            words = []
            for k in range(torch.randint(1, 4, (1,), generator=g).item()):
                s = pick(SUBJ)
                words += (["and"] if k else []) + ["the", s, VERB[s], OBJ[VERB[s]], pick(TIME)]
            yield [CLS] + [IDX[w] for w in words] + [SEP]

    def __iter__(self):
        return itertools.islice(self.generate(), self.skip, None)


def pad_batch(seqs):
    return nn.utils.rnn.pad_sequence([torch.tensor(s) for s in seqs], batch_first=True, padding_value=PAD)


def mask_tokens(ids, prob=0.2):
    """80 % [MASK], 10 % random word, 10 % left as it is; -100 wherever nothing was picked."""
    attention = (ids != PAD).long()
    original = ids.clone()  #! alias_labels: original = ids
    allowed = ids >= len(SPECIALS)  #! specials_masked: allowed = torch.ones_like(ids, dtype=torch.bool)
    picked = (torch.rand(ids.shape) < prob) & allowed
    dice = torch.rand(ids.shape)
    ids[picked & (dice < 0.8)] = MASK
    swap = picked & (dice >= 0.8) & (dice < 0.9)
    ids[swap] = torch.randint(len(SPECIALS), len(TOKENS), ids.shape)[swap]
    labels = torch.where(picked, original, torch.full_like(original, -100))
    return ids, attention, labels


class MLMTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = BertForMaskedLM(BertConfig(
            vocab_size=len(TOKENS), hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=96, max_position_embeddings=24, hidden_dropout_prob=0.05))

    def forward(self, ids, attention, labels):
        return self.model(input_ids=ids, attention_mask=attention, labels=labels).loss


def build(total):
    task = MLMTask()
    opt = torch.optim.AdamW(task.parameters(), lr=4e-3, weight_decay=0.01)
    warm = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, total_iters=10)
    down = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=total - 10, eta_min=1e-4)
    return task, opt, torch.optim.lr_scheduler.SequentialLR(opt, [warm, down], milestones=[10])


def run_steps(task, opt, sched, first, last, batch=32):
    loader = DataLoader(SentenceStream(seed=77, skip=first * batch), batch_size=batch, collate_fn=pad_batch)
    task.train()
    losses = []
    for ids in itertools.islice(loader, last - first):
        loss = task(*mask_tokens(ids))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(task.parameters(), 1.0)
        opt.step()
        sched.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def dev_loss(task):
    task.eval()
    keep_rng = torch.get_rng_state()
    torch.manual_seed(123)                       # same dev masks every time
    loader = DataLoader(SentenceStream(seed=78), batch_size=64, collate_fn=pad_batch)
    vals = [task(*mask_tokens(ids)).item() for ids in itertools.islice(loader, 3)]
    torch.set_rng_state(keep_rng)
    return sum(vals) / len(vals)


def train():
    torch.manual_seed(42)
    total, cut = 120, 60
    path = os.path.join(tempfile.mkdtemp(), "half.pt")

    task, opt, sched = build(total)
    losses = run_steps(task, opt, sched, 0, cut)
    print(f"first half : {losses[0]:.3f} -> {losses[-1]:.3f}   dev {dev_loss(task):.3f}")
    torch.save({"task": task.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(),
                "rng": torch.get_rng_state(), "step": cut}, path)
    del task, opt, sched

    # ... the job is killed here; a new process would begin as follows
    task, opt, sched = build(total)
    ckpt = torch.load(path, weights_only=True)
    task.load_state_dict(ckpt["task"])  #! strict_false: task.model.load_state_dict(ckpt["task"], strict=False)
    opt.load_state_dict(ckpt["opt"])  #! opt_not_restored: pass
    sched.load_state_dict(ckpt["sched"])  #! opt_not_restored: pass
    torch.set_rng_state(ckpt["rng"])
    more = run_steps(task, opt, sched, ckpt["step"], total)
    print(f"second half: {more[0]:.3f} -> {more[-1]:.3f}   dev {dev_loss(task):.3f}")


WATCH = ()
