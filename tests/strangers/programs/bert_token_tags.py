"""A tiny BERT tags tokens: right padding, class weights, gradient checkpointing off, weight decay groups without biases.

fault no_decay_group_empty: DK103
"""
import torch
from transformers import BertConfig, BertForTokenClassification

torch.manual_seed(33)
model = BertForTokenClassification(BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=32, num_labels=4))
skip = ("bias", "LayerNorm.weight")  #! no_decay_group_empty: skip = ("gamma", "beta")
decay = [p for n, p in model.named_parameters() if not n.endswith(skip)]
plain = [p for n, p in model.named_parameters() if n.endswith(skip)]
optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=5e-4)
def batch(n=8):
    ids = torch.randint(4, 60, (n, 14)); length = torch.randint(5, 15, (n,)); length[0] = 14
    mask = (torch.arange(14)[None] < length[:, None]).long()
    labels = torch.where(mask.bool(), ids % 4, torch.tensor(-100))
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": labels}
def train():
    model.train()
    for _ in range(25):
        optimizer.zero_grad(); model(**batch()).loss.backward(); optimizer.step()
CHECK = lambda: dict(model=model, batch=batch(), optimizer=optimizer)
WATCH = (model, optimizer)
