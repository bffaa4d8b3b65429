"""A tiny ViT of transformers, backbone loaded from a checkpoint with strict=False and a new head, layer-wise rates."""
import torch
from transformers import ViTConfig, ViTForImageClassification

torch.manual_seed(30)
cfg = ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=16, patch_size=4, num_labels=6)
donor = ViTForImageClassification(ViTConfig(**{**cfg.to_dict(), "num_labels": 10}))
state = {k: v for k, v in donor.state_dict().items() if not k.startswith("classifier")}
model = ViTForImageClassification(cfg)
missing = model.load_state_dict(state, strict=False)
assert not missing.unexpected_keys
groups = [{"params": model.vit.parameters(), "lr": 1e-4}, {"params": model.classifier.parameters(), "lr": 1e-3}]
optimizer = torch.optim.AdamW(groups)

def batch(n=8):
    y = torch.randint(0, 6, (n,))
    x = torch.randn(n, 3, 16, 16) * 0.3
    for i in range(n):
        x[i, int(y[i]) % 3, 4 * (int(y[i]) // 3):4 * (int(y[i]) // 3) + 4] += 1
    return {"pixel_values": x, "labels": y}

def train():
    model.train()
    for _ in range(30):
        loss = model(**batch()).loss
        optimizer.zero_grad(); loss.backward(); optimizer.step()
CHECK = lambda: dict(model=model, batch=batch(), optimizer=optimizer)
WATCH = (model, optimizer)
