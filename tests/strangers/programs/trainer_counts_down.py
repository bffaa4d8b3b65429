"""A tiny GPT-2 counts down and stops; pad token and end token are the same, and labels are masked by the attention mask.

fault end_masked: DK323
fault end_masked_varied: DK323
"""
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

set_seed(0)
EOS = 0
PAD = EOS  # tokenizer.pad_token = tokenizer.eos_token


class Counting(Dataset):
    """A number and then that many steps down to 1, then the end."""

    def __init__(self, n):
        self.rows = [list(range(int(k), 0, -1)) + [EOS] for k in torch.randint(3, 12, (n,))]  #! end_masked_varied: self.rows = [list(range(int(k), 0, -1)) + [12 + int(k) % 3, EOS] for k in torch.randint(3, 12, (n,))]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i]}


def collate(features):
    longest = max(len(f["input_ids"]) for f in features)
    ids = torch.full((len(features), longest), PAD)
    mask = torch.zeros_like(ids)
    for i, f in enumerate(features):
        n = len(f["input_ids"])
        ids[i, :n] = torch.tensor(f["input_ids"])
        mask[i, :n] = 1
    labels = ids.clone()
    labels[mask == 0] = -100  #! end_masked: labels[labels == PAD] = -100  #! end_masked_varied: labels[labels == PAD] = -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def train():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=EOS,
                                       eos_token_id=EOS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    args = TrainingArguments(output_dir=tempfile.mkdtemp(), max_steps=150, per_device_train_batch_size=16, learning_rate=5e-3,
                             logging_steps=50, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True)
    trainer = Trainer(model=model, args=args, train_dataset=Counting(1000), data_collator=collate)
    trainer.train()

    model.eval()
    stopped = 0
    for k in range(3, 12):
        out = model.generate(torch.tensor([[k]]), attention_mask=torch.ones(1, 1, dtype=torch.long), max_new_tokens=16,
                             do_sample=False, pad_token_id=PAD)[0].tolist()
        stopped += out == list(range(k, 0, -1)) + [EOS]  #! end_masked_varied: stopped += out == list(range(k, 0, -1)) + [12 + k % 3, EOS]
    print("generations that end correctly:", stopped, "of 9; last:", out)


WATCH = ()
