"""run_glue_no_trainer with accelerate: accumulate(), decay groups, linear schedule with warm-up, sync_gradients clipping, gather_for_metrics; DistilBERT-like from config."""
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import DistilBertConfig, DistilBertForSequenceClassification, get_scheduler, DataCollatorWithPadding

set_seed(11)


def entail(n, seed):
    g = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(n):
        L = int(torch.randint(3, 7, (1,), generator=g))
        a = torch.randint(4, 24, (L,), generator=g)
        y = int(torch.randint(0, 2, (1,), generator=g))
        b = torch.randint(4, 14, (4,), generator=g) if y else torch.randint(10, 24, (4,), generator=g)
        ids = [1, *a.tolist(), 2, *b.tolist(), 2]
        rows.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": y})
    return rows


def pad(rows):
    L = max(len(r["input_ids"]) for r in rows)
    out = {k: torch.tensor([r[k] + [0] * (L - len(r[k])) for r in rows]) for k in ("input_ids", "attention_mask")}
    out["labels"] = torch.tensor([r["labels"] for r in rows])
    return out


def train():
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
    cfg = DistilBertConfig(vocab_size=24, dim=48, n_layers=2, n_heads=4, hidden_dim=96, max_position_embeddings=16, num_labels=2, dropout=.05, seq_classif_dropout=.1)
    model = DistilBertForSequenceClassification(cfg)
    train, dev = entail(800, 0), entail(128, 1)
    train_dl = DataLoader(train, shuffle=True, collate_fn=pad, batch_size=16)
    eval_dl = DataLoader(dev, collate_fn=pad, batch_size=32)
    no_decay = ["bias", "LayerNorm.weight", "layer_norm.weight"]
    groups = [{"params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)], "weight_decay": .01},
              {"params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)], "weight_decay": 0.}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    epochs = 4
    total = epochs * (len(train_dl) // 2)
    sched = get_scheduler("linear", optimizer, num_warmup_steps=10, num_training_steps=total)
    model, optimizer, train_dl, eval_dl, sched = accelerator.prepare(model, optimizer, train_dl, eval_dl, sched)
    for epoch in range(epochs):
        model.train()
        tot = 0.
        for batch in train_dl:
            with accelerator.accumulate(model):
                outputs = model(**batch)
                tot += outputs.loss.detach().float()
                accelerator.backward(outputs.loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.)
                optimizer.step()
                sched.step()
                optimizer.zero_grad()
        model.eval()
        ok = n = 0
        for batch in eval_dl:
            with torch.no_grad():
                outputs = model(**batch)
            pred, ref = accelerator.gather_for_metrics((outputs.logits.argmax(-1), batch["labels"]))
            ok += int((pred == ref).sum()); n += len(ref)
        accelerator.print(f"epoch {epoch} loss {tot.item() / len(train_dl):.3f} acc {ok / n:.3f}")


WATCH = ()
