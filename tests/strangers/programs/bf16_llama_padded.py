"""A tiny Llama in bfloat16 with left padding and labels of -100 where the prompt or padding is.

fault mask_left_out: DK303|DK315 at "m(input_ids"|input:attention_mask
fault all_ignored: DK307 at here|input:labels
"""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(14)
cfg = LlamaConfig(vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
model = LlamaForCausalLM(cfg).to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

def collate(rows):
    width = max(len(p) + len(a) for p, a in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long); labels = torch.full_like(ids, -100)
    for i, (p, a) in enumerate(rows):
        ids[i, width - len(p) - len(a):] = torch.tensor(p + a)
        labels[i, width - len(a):] = torch.tensor(a)  #! all_ignored: labels[i, :] = -100
    return {"input_ids": ids, "labels": labels, "attention_mask": (ids != 0).long()}

def batch():
    rows = []
    for k in torch.randint(3, 9, (6,)).tolist():
        p = torch.randint(3, 48, (k,)).tolist()
        rows.append((p, p[::-1] + [2]))
    return collate(rows)

def loss_fn(m, b):
    position_ids = (b["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    return m(input_ids=b["input_ids"], attention_mask=b["attention_mask"], position_ids=position_ids, labels=b["labels"]).loss  #! mask_left_out: return m(input_ids=b["input_ids"], position_ids=position_ids, labels=b["labels"]).loss

def train():
    for _ in range(25):
        optimizer.zero_grad()
        loss_fn(model, batch()).backward()
        optimizer.step()

CHECK = lambda: dict(model=model, batch=batch(), loss_fn=loss_fn, optimizer=optimizer)
WATCH = (model, optimizer)
