"""Supervised fine-tuning of a small Llama with the HF Trainer; the collator pads on the left, as generation does.

fault prompt_masked_from_the_left: DK309|DK315 at here
"""
import random

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(1)
PAD, BOS, EOS, USER, BOT = 0, 1, 2, 3, 4
WORDS = list(range(10, 40))


def example(rng):
    """The user says a few words, the bot says them in reverse."""
    words = [rng.choice(WORDS) for _ in range(rng.randint(2, 7))]
    prompt = [BOS, USER] + words + [BOT]
    return {"prompt": prompt, "answer": words[::-1] + [EOS]}


class Chats(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.rows = [example(rng) for _ in range(n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class LeftPadCollator:
    def __call__(self, rows):
        width = max(len(r["prompt"]) + len(r["answer"]) for r in rows)
        ids = torch.full((len(rows), width), PAD)
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        labels = torch.full((len(rows), width), -100)
        for i, r in enumerate(rows):
            full = torch.tensor(r["prompt"] + r["answer"])
            start = width - len(full)
            ids[i, start:] = full
            mask[i, start:] = 1
            labels[i] = ids[i]
            labels[i, :start + len(r["prompt"])] = -100  #! prompt_masked_from_the_left: labels[i, :len(r["prompt"])] = -100
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


config = LlamaConfig(vocab_size=48, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                     pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, tie_word_embeddings=True)
model = LlamaForCausalLM(config)

args = TrainingArguments(output_dir="/tmp/st4/sft_out", per_device_train_batch_size=16, max_steps=250,
                         learning_rate=4e-3, lr_scheduler_type="cosine", warmup_steps=20, weight_decay=0.01,
                         logging_steps=50, save_strategy="no", report_to=[], remove_unused_columns=False,
                         disable_tqdm=True, use_cpu=True, seed=1)
trainer = Trainer(model=model, args=args, train_dataset=Chats(4000, 0), data_collator=LeftPadCollator())
trainer.train()

model.eval()
hits, tests = 0, Chats(40, 99)
for r in tests:
    out = model.generate(torch.tensor([r["prompt"]]), attention_mask=torch.ones(1, len(r["prompt"]), dtype=torch.long),
                         max_new_tokens=10, do_sample=False)
    hits += out[0, len(r["prompt"]):].tolist()[:len(r["answer"])] == r["answer"]
print("exact match", hits / len(tests))


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
