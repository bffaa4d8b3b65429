"""A tiny T5 with padded source and target, -100 in the labels; Adafactor-like rates by a plain AdamW and a linear schedule."""
import torch
from transformers import T5Config, T5ForConditionalGeneration, get_linear_schedule_with_warmup

torch.manual_seed(32)
model = T5ForConditionalGeneration(T5Config(vocab_size=50, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.1, decoder_start_token_id=0))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = get_linear_schedule_with_warmup(optimizer, 5, 100)
def batch(n=6):
    ids = torch.zeros(n, 10, dtype=torch.long); labels = torch.full((n, 10), -100)
    for i in range(n):
        L = int(torch.randint(4, 10, (1,))); s = torch.randint(2, 50, (L,))
        ids[i, :L] = s; ids[i, L] = 1
        labels[i, :L] = s; labels[i, L] = 1
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}
def train():
    model.train()
    for _ in range(25):
        out = model(**batch())
        out.loss.backward(); optimizer.step(); schedule.step(); optimizer.zero_grad()
CHECK = lambda: dict(model=model, batch=batch(), optimizer=optimizer)
WATCH = (model, optimizer)
