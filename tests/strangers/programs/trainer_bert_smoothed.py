"""HF Trainer: tiny BERT from a config, compute_metrics, dynamic padding, gradient accumulation, callback, own loss by subclass.

fault mean_of_micro_batches: DK507
"""
import numpy as np, torch, tempfile
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, TrainerCallback, set_seed

set_seed(7)
PAD, CLS, SEP = 0, 1, 2


class Review(Dataset):
    """label = whether more tokens of the first half of the vocabulary than of the second"""
    def __init__(self, n, seed):
        r = np.random.default_rng(seed)
        self.rows = []
        for _ in range(n):
            L = int(r.integers(5, 14))
            bias = .75 if r.random() < .5 else .25
            ids = np.where(r.random(L) < bias, r.integers(3, 16, L), r.integers(16, 30, L))
            a, b = (ids < 16).sum(), (ids >= 16).sum()
            if a == b:
                ids, a = np.append(ids, 5), a + 1
            self.rows.append({"input_ids": [CLS, *ids.tolist(), SEP], "labels": int(a > b)})

    def __len__(self): return len(self.rows)
    def __getitem__(self, i): return self.rows[i]


def collate(rows):
    L = max(len(r["input_ids"]) for r in rows)
    ids = torch.tensor([r["input_ids"] + [PAD] * (L - len(r["input_ids"])) for r in rows])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": torch.tensor([r["labels"] for r in rows])}


class SmoothTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        out = model(**inputs)
        loss = torch.nn.functional.cross_entropy(out.logits, labels, label_smoothing=.05, reduction="sum") / (len(labels) if num_items_in_batch is None else num_items_in_batch)  #! mean_of_micro_batches: loss = torch.nn.functional.cross_entropy(out.logits, labels, label_smoothing=.05)
        return (loss, {"loss": loss, "logits": out.logits}) if return_outputs else loss


class Print(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics, **kw):
        print(state.global_step, {k: round(v, 3) for k, v in metrics.items() if k in ("eval_loss", "eval_accuracy")})


def compute_metrics(p):
    logits = p.predictions[0] if isinstance(p.predictions, tuple) else p.predictions
    return {"accuracy": float((logits.argmax(-1) == p.label_ids).mean())}


def train():
    config = BertConfig(vocab_size=30, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, max_position_embeddings=24, num_labels=2, pad_token_id=PAD)
    model = BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as d:
        args = TrainingArguments(d, per_device_train_batch_size=16, gradient_accumulation_steps=2, num_train_epochs=4, learning_rate=2e-3, warmup_steps=10,
                                 eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="accuracy", logging_steps=10,
                                 report_to=[], use_cpu=True, disable_tqdm=True, seed=7, save_total_limit=1)
        t = SmoothTrainer(model=model, args=args, train_dataset=Review(512, 0), eval_dataset=Review(100, 1), data_collator=collate, compute_metrics=compute_metrics, callbacks=[Print])
        t.train()
        print(t.evaluate()["eval_accuracy"], [h["loss"] for h in t.state.log_history if "loss" in h])


WATCH = ()
