"""A tiny GPT-2 of transformers with labels in the batch; four micro-batches per step, the loss divided by four.

fault not_divided: DK507 at "loss.backward()"
fault eval_forgotten: DK505 at "model.eval()"
fault metric_keeps_graph: DK601 at here
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(11)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
ACC = 4

def batch():
    ids = (torch.randint(0, 64, (4, 1)) + torch.randint(1, 5, (4, 1)) * torch.arange(16)) % 64
    return {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}

def evaluate():
    model.eval()
    with torch.no_grad():
        total = sum(model(**batch()).loss.item() for _ in range(2))
    model.train()  #! eval_forgotten: pass
    return total / 2

def train():
    model.train()
    history = []
    for micro in range(48):
        out = model(**batch())
        loss = out.loss / ACC  #! not_divided: loss = out.loss
        loss.backward()
        history.append(out.loss.item())  #! metric_keeps_graph: history.append(out.loss)
        if (micro + 1) % ACC == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if micro == 8:
            evaluate()

CHECK = lambda: dict(model=model, batch=batch(), optimizer=optimizer)
WATCH = (model, optimizer)
