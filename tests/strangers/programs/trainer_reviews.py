"""Sentiment classifier on made-up product reviews: BERT from a small config, transformers Trainer with own collator, compute_metrics and early stopping.

fault attn_ones: DK303
fault labels_apart: none
fault val_vocab: none
fault lr_high: DK509|DK206
"""
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (BertConfig, BertForSequenceClassification, EarlyStoppingCallback, Trainer,
                          TrainingArguments, set_seed)

GOOD = "great excellent lovely solid superb charming reliable bright".split()
BAD = "awful broken dull cheap noisy terrible flimsy slow".split()
FILL = ("the a this product box screen battery was is and but with my delivery day week very really "
        "quite it phone lamp chair price color arrived after before two three").split()
PAD, UNK, CLS, SEP = 0, 1, 2, 3


def write_reviews(n, rng):
    """n sentences; first all positive ones, then all negative ones (as they come out of the export)."""
    texts, labels = [], []
    for label in (1, 0):
        for _ in range(n // 2):
            words = list(rng.choice(FILL, size=rng.integers(3, 15)))
            opinions = rng.choice(GOOD if label else BAD, size=rng.integers(1, 4))
            for w in opinions:
                words.insert(rng.integers(0, len(words) + 1), w)
            texts.append(" ".join(words))
            labels.append(label)
    return texts, labels


def build_vocab(texts):
    vocab = {"[PAD]": PAD, "[UNK]": UNK, "[CLS]": CLS, "[SEP]": SEP}
    for t in texts:
        for w in t.split():
            vocab.setdefault(w, len(vocab))
    return vocab


class ReviewDataset(Dataset):
    def __init__(self, texts, labels, vocab):
        self.items = [
            {"input_ids": [CLS] + [vocab.get(w, UNK) for w in t.split()] + [SEP], "label": int(y)}
            for t, y in zip(texts, labels)
        ]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class PadCollator:
    def __call__(self, features):
        longest = max(len(f["input_ids"]) for f in features)
        ids = torch.full((len(features), longest), PAD, dtype=torch.long)
        for row, f in enumerate(features):
            ids[row, : len(f["input_ids"])] = torch.tensor(f["input_ids"])
        return {
            "input_ids": ids,
            "attention_mask": (ids != PAD).long(),  #! attn_ones: "attention_mask": torch.ones_like(ids),
            "labels": torch.tensor([f["label"] for f in features]),
        }


def compute_metrics(pred):
    guess = pred.predictions.argmax(axis=-1)
    gold = pred.label_ids
    tp = int(((guess == 1) & (gold == 1)).sum())
    precision = tp / max(int((guess == 1).sum()), 1)
    recall = tp / max(int((gold == 1).sum()), 1)
    return {"accuracy": float((guess == gold).mean()),
            "f1": 2 * precision * recall / max(precision + recall, 1e-8)}


def train():
    set_seed(13)
    rng = np.random.default_rng(13)
    texts, labels = write_reviews(400, rng)
    order = rng.permutation(len(texts))
    texts = [texts[i] for i in order]
    labels = [labels[i] for i in order]  #! labels_apart: labels = [labels[i] for i in rng.permutation(len(labels))]

    n_train = 320
    vocab = build_vocab(texts[:n_train])
    train_set = ReviewDataset(texts[:n_train], labels[:n_train], vocab)
    valid_vocab = vocab  #! val_vocab: valid_vocab = build_vocab(texts[n_train:])
    valid_set = ReviewDataset(texts[n_train:], labels[n_train:], valid_vocab)

    config = BertConfig(vocab_size=len(vocab), hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=96, max_position_embeddings=32, num_labels=2, pad_token_id=PAD)
    model = BertForSequenceClassification(config)

    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out,
            num_train_epochs=6,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=40,
            learning_rate=1e-3,  #! lr_high: learning_rate=1e-1,
            weight_decay=0.01,
            warmup_steps=10,
            lr_scheduler_type="cosine",
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=2,
            load_best_model_at_end=True,
            metric_for_best_model="f1",
            greater_is_better=True,
            logging_steps=10,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=13,
        )
        trainer = Trainer(model=model, args=args, train_dataset=train_set, eval_dataset=valid_set,
                          data_collator=PadCollator(), compute_metrics=compute_metrics,
                          callbacks=[EarlyStoppingCallback(early_stopping_patience=3)])
        trainer.train()
        final = trainer.evaluate()
    losses = [h["loss"] for h in trainer.state.log_history if "loss" in h]
    print(f"first loss {losses[0]:.4f}  last loss {losses[-1]:.4f}  val acc {final['eval_accuracy']:.3f}")


WATCH = ()
