"""Fine-tuning style run: a tiny, randomly initialised BERT classifier trained with the transformers Trainer
under torchrun, evaluated after each epoch.

fault double_softmax: DK308
    The model's probabilities, not its logits, go into cross-entropy.
fault attend_to_padding: DK303|DK315 at here|input:attention_mask
    The attention mask is all ones, so padding is attended to.
fault eval_on_train: DK311|DK321
    The evaluation set handed to the Trainer is the training set.
"""
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

PAD, CLS, VOCAB, MAXLEN = 0, 1, 60, 16


class TopicSentences(Dataset):
    """Bags of token ids: each of the three topics prefers its own ten words."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(n):
            topic = int(rng.integers(3))
            length = int(rng.integers(6, MAXLEN))
            own = rng.integers(10 + 10 * topic, 20 + 10 * topic, size=length)
            noise = rng.integers(10, VOCAB, size=length)
            words = np.where(rng.random(length) < 0.4, own, noise)
            self.items.append(([CLS] + words.tolist(), topic))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        ids, label = self.items[i]
        return {"input_ids": ids, "labels": label}


def collate(batch):
    width = max(len(b["input_ids"]) for b in batch)
    ids = torch.tensor([b["input_ids"] + [PAD] * (width - len(b["input_ids"])) for b in batch])
    return {
        "input_ids": ids,
        "attention_mask": (ids != PAD).long(),  #! attend_to_padding: "attention_mask": torch.ones_like(ids),
        "labels": torch.tensor([b["labels"] for b in batch]),
    }


class SmoothedTrainer(Trainer):
    """Trainer with label smoothing of its own."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits
        loss = F.cross_entropy(logits, labels, label_smoothing=0.05)  #! double_softmax: loss = F.cross_entropy(logits.softmax(-1), labels, label_smoothing=0.05)
        outputs["loss"] = loss
        return (loss, {"loss": loss, "logits": logits}) if return_outputs else loss


def compute_metrics(pred):
    guess = pred.predictions.argmax(-1)
    return {"accuracy": float((guess == pred.label_ids).mean())}


def main():
    set_seed(17)
    train_ds, valid_ds = TopicSentences(640, seed=0), TopicSentences(192, seed=1)
    config = BertConfig(vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=96, max_position_embeddings=MAXLEN + 2, num_labels=3,
                        initializer_range=0.1, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, pad_token_id=PAD)
    model = BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out, use_cpu=True, ddp_backend="gloo", seed=17,
            num_train_epochs=4, per_device_train_batch_size=16, per_device_eval_batch_size=48,
            learning_rate=1e-3, weight_decay=0.01, warmup_steps=8, lr_scheduler_type="linear",
            eval_strategy="epoch", logging_strategy="epoch", save_strategy="no",
            report_to=[], disable_tqdm=True, remove_unused_columns=False, ddp_find_unused_parameters=False,
        )
        trainer = SmoothedTrainer(
            model=model, args=args, data_collator=collate, train_dataset=train_ds,
            eval_dataset=valid_ds,  #! eval_on_train: eval_dataset=train_ds,
            compute_metrics=compute_metrics,
        )
        trainer.train()
        result = trainer.evaluate()
        if trainer.is_world_process_zero():
            print(f"final accuracy {result['eval_accuracy']:.3f} loss {result['eval_loss']:.3f}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
