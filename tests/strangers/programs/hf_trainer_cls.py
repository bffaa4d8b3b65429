"""transformers Trainer on a tiny BERT classifier of token sequences, with its own collator, macro-F1 and best checkpoint.

fault threshold_binary: none
fault best_is_lowest: none
fault mask_all_ones: DK303
fault eval_on_train: DK311|DK321
"""
import tempfile

import numpy as np
import torch
from transformers import (BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainerCallback,
                          TrainingArguments, set_seed)
from transformers.utils import logging

CLS, PAD, VOCAB, CLASSES = 1, 0, 30, 3


def make_examples(n, seed):
    """The class is the family (three families of nine tokens) that occurs most often; classes are unbalanced."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        label = int(rng.choice(CLASSES, p=[0.5, 0.3, 0.2]))
        length = int(rng.integers(5, 14))
        share = np.full(CLASSES, 0.2)
        share[label] = 0.6
        family = rng.choice(CLASSES, size=length, p=share)
        tokens = 3 + 9 * family + rng.integers(0, 9, length)
        rows.append({"tokens": [CLS, *tokens.tolist()], "label": label})
    return rows


class PadCollator:
    def __init__(self, multiple=4):
        self.multiple = multiple

    def __call__(self, rows):
        width = max(len(r["tokens"]) for r in rows)
        width = -(-width // self.multiple) * self.multiple
        ids = torch.full((len(rows), width), PAD)
        for i, r in enumerate(rows):
            ids[i, :len(r["tokens"])] = torch.tensor(r["tokens"])
        mask = (ids != PAD).long()  #! mask_all_ones: mask = torch.ones_like(ids)
        return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([r["label"] for r in rows])}


def compute_metrics(prediction):
    logits, labels = prediction
    guess = np.argmax(logits, axis=-1)  #! threshold_binary: guess = (logits[:, 1] > 0.5).astype(int)
    scores = []
    for c in range(CLASSES):
        tp = np.sum((guess == c) & (labels == c))
        denominator = np.sum(guess == c) + np.sum(labels == c)
        scores.append(2 * tp / denominator if denominator else 0.0)
    return {"accuracy": float(np.mean(guess == labels)), "macro_f1": float(np.mean(scores))}


class Keep(TrainerCallback):
    def __init__(self):
        self.loss, self.f1 = [], []

    def on_log(self, args, state, control, logs=None, **kw):
        if logs and "loss" in logs:
            self.loss.append(float(logs["loss"]))

    def on_evaluate(self, args, state, control, metrics=None, **kw):
        self.f1.append(metrics["eval_macro_f1"])


def train():
    logging.disable_progress_bar()
    set_seed(81)
    fit, held = make_examples(320, 1), make_examples(120, 2)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=20, num_labels=CLASSES, pad_token_id=PAD))
    keep = Keep()
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=16, per_device_eval_batch_size=40, num_train_epochs=5,
            learning_rate=4e-3, lr_scheduler_type="cosine", warmup_steps=8, weight_decay=0.01, max_grad_norm=1.0,
            eval_strategy="epoch", save_strategy="epoch", save_total_limit=1, logging_steps=5,
            load_best_model_at_end=True, metric_for_best_model="macro_f1",
            greater_is_better=True,  #! best_is_lowest: greater_is_better=False,
            remove_unused_columns=False, report_to=[], disable_tqdm=True, use_cpu=True, seed=81, data_seed=82)
        trainer = Trainer(
            model=model, args=args, data_collator=PadCollator(), compute_metrics=compute_metrics, callbacks=[keep],
            train_dataset=fit,
            eval_dataset=held)  #! eval_on_train: eval_dataset=fit)
        trainer.pop_callback(PrinterCallback)
        trainer.train()
        train.score = keep.f1, trainer.evaluate()["eval_macro_f1"]
    return keep.loss


WATCH = ()
