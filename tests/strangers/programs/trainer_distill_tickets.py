"""Support-ticket routing with unbalanced queues: a small student is distilled from a bigger BERT with a Trainer subclass that overrides compute_loss (class weights + KD).

fault weights_upside_down: DK316 at "hard = F.cross_entropy"
fault double_softmax: DK308
fault teacher_dropout: none
fault warmup_forever: none
"""
import os
import random
import tempfile
from collections import Counter

import torch
import torch.nn.functional as F
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

QUEUES = {
    "billing": ["invoice", "refund", "charge", "card", "payment"],
    "login": ["password", "locked", "email", "code", "account"],
    "shipping": ["parcel", "courier", "late", "address", "tracking"],
    "legal": ["contract", "privacy", "lawyer", "terms", "consent"],
}
SHARES = [0.48, 0.27, 0.16, 0.09]
NOISE = [f"word{i}" for i in range(40)]
STOI = {w: i + 2 for i, w in enumerate(NOISE + sum(QUEUES.values(), []))}
PAD_ID, CLS_ID = 0, 1


def make_tickets(n, seed):
    r = random.Random(seed)
    rows = []
    for _ in range(n):
        y = r.choices(range(4), SHARES)[0]
        key = list(QUEUES.values())[y]
        words = r.choices(NOISE, k=r.randint(4, 10)) + r.sample(key, 2)
        r.shuffle(words)
        rows.append({"ids": [CLS_ID] + [STOI[w] for w in words], "y": y})
    return rows


def collate(rows):
    width = max(len(r["ids"]) for r in rows)
    ids = torch.tensor([r["ids"] + [PAD_ID] * (width - len(r["ids"])) for r in rows])
    return dict(input_ids=ids, attention_mask=ids.ne(PAD_ID).long(), labels=torch.tensor([r["y"] for r in rows]))


def bert(width, layers, drop):
    return BertForSequenceClassification(BertConfig(
        vocab_size=len(STOI) + 2, hidden_size=width, num_hidden_layers=layers, num_attention_heads=4,
        intermediate_size=2 * width, max_position_embeddings=16, num_labels=4, pad_token_id=PAD_ID, initializer_range=0.1,
        hidden_dropout_prob=drop, attention_probs_dropout_prob=drop))


def fit_teacher(rows):
    """Short supervised training; returned frozen."""
    net = bert(64, 2, 0.2)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    loader = torch.utils.data.DataLoader(rows, batch_size=32, shuffle=True, collate_fn=collate)
    net.train()
    for _ in range(5):
        for batch in loader:
            loss = net(**batch).loss
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(f"teacher ready, last loss {loss.item():.3f}")
    net.requires_grad_(False)
    net.eval()  #! teacher_dropout: pass
    return net


class DistillTrainer(Trainer):
    def __init__(self, *a, teacher=None, class_weights=None, T=2.0, alpha=0.5, **kw):
        super().__init__(*a, **kw)
        self.teacher, self.class_weights, self.T, self.alpha = teacher, class_weights, T, alpha

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs["labels"]
        feats = {k: v for k, v in inputs.items() if k != "labels"}
        out = model(**feats)
        with torch.no_grad():
            t_logits = self.teacher(**feats).logits
        scores = out.logits  #! double_softmax: scores = out.logits.softmax(dim=-1)
        hard = F.cross_entropy(scores, labels, weight=self.class_weights)
        soft = F.kl_div(F.log_softmax(out.logits / self.T, dim=-1), F.softmax(t_logits / self.T, dim=-1),
                        reduction="batchmean") * self.T ** 2
        loss = self.alpha * hard + (1 - self.alpha) * soft
        return (loss, {"logits": out.logits}) if return_outputs else loss


def macro_recall(p):
    guess, gold = p.predictions.argmax(-1), p.label_ids
    per_class = [float((guess[gold == c] == c).mean()) for c in range(4) if (gold == c).any()]
    return {"macro_recall": sum(per_class) / len(per_class)}


def train():
    set_seed(7)
    train_rows, valid_rows = make_tickets(512, seed=1), make_tickets(128, seed=2)
    seen = {tuple(r["ids"]) for r in train_rows}
    valid_rows = [r for r in valid_rows if tuple(r["ids"]) not in seen]

    counts = Counter(r["y"] for r in train_rows)
    n = torch.tensor([counts[c] for c in range(4)], dtype=torch.float)
    weights = n.sum() / (4 * n)  #! weights_upside_down: weights = 4 * n / n.sum()

    teacher = fit_teacher(train_rows)
    student = bert(32, 1, 0.1)
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out, num_train_epochs=8, per_device_train_batch_size=32, per_device_eval_batch_size=64,
            learning_rate=4e-3, lr_scheduler_type="linear", max_grad_norm=1.0,
            warmup_steps=8,  #! warmup_forever: warmup_steps=5000,
            eval_strategy="epoch", save_strategy="no", logging_steps=8, report_to=[], disable_tqdm=True,
            remove_unused_columns=False, use_cpu=True, seed=7)
        trainer = DistillTrainer(model=student, args=args, train_dataset=train_rows, eval_dataset=valid_rows,
                                 data_collator=collate, compute_metrics=macro_recall,
                                 teacher=teacher, class_weights=weights)
        trainer.train()
    hist = [h["loss"] for h in trainer.state.log_history if "loss" in h]
    rec = [h["eval_macro_recall"] for h in trainer.state.log_history if "eval_macro_recall" in h]
    print(f"student loss {hist[0]:.3f} -> {hist[-1]:.3f}, macro recall {rec[-1]:.3f}")


WATCH = ()
