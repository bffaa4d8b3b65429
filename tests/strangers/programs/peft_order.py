"""LoRA adapters (peft) that teach a small causal model to answer in a fixed format.

fault optimizer_before_the_adapters: DK101|DK103 at here
"""
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM, get_linear_schedule_with_warmup, set_seed

set_seed(5)
BOS, EOS, EQ, PLUS = 1, 2, 3, 4
DIGIT = 10


def encode(a, b, op):
    return [BOS, DIGIT + a, PLUS, DIGIT + b, EQ], [DIGIT + op(a, b), EOS]


class Sums(Dataset):
    def __init__(self, n, seed, op):
        g = torch.Generator().manual_seed(seed)
        self.pairs, self.op = torch.randint(0, 10, (n, 2), generator=g).tolist(), op

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        prompt, answer = encode(*self.pairs[i], self.op)
        ids = torch.tensor(prompt + answer)
        labels = torch.tensor([-100] * len(prompt) + answer)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


config = LlamaConfig(vocab_size=32, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=32,
                     pad_token_id=0, bos_token_id=BOS, eos_token_id=EOS)
model = LlamaForCausalLM(config)

# the base: it knows which of two digits is larger
base_optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for batch in DataLoader(Sums(2400, 1, max), batch_size=16, shuffle=True):
    loss = model(**batch).loss
    loss.backward()
    base_optimizer.step()
    base_optimizer.zero_grad()
print("base", loss.item())

# the adapter: the smaller one
lora = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, task_type="CAUSAL_LM",
                  target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "gate_proj"])

loader = DataLoader(Sums(1600, 0, min), batch_size=16, shuffle=True)  #! optimizer_before_the_adapters: loader = DataLoader(Sums(1600, 0, min), batch_size=16, shuffle=True); optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
model = get_peft_model(model, lora)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)  #! optimizer_before_the_adapters: pass
scheduler = get_linear_schedule_with_warmup(optimizer, 10, 2 * len(loader))
model.print_trainable_parameters()

model.train()
step = 0
for epoch in range(2):
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if step % 40 == 0:
            print(epoch, step, f"{loss.item():.4f}")
        step += 1
print("final", loss.item())


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
