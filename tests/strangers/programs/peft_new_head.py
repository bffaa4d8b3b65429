"""PEFT LoRA on a small BERT; the new classifier is trained with the adapters.

fault head_frozen: DK117
"""
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(0)


def train():
    config = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                        max_position_embeddings=32, num_labels=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    base = BertForSequenceClassification(config)

    ids = torch.randint(5, 100, (800, 12))
    labels = (ids[:, 0] % 4)
    train_dl = DataLoader(TensorDataset(ids[:640], labels[:640]), batch_size=32, shuffle=True)
    test_dl = DataLoader(TensorDataset(ids[640:], labels[640:]), batch_size=80)

    lora = LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value"], lora_dropout=0.0, modules_to_save=["classifier"])  #! head_frozen: lora = LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value"], lora_dropout=0.0)
    model = get_peft_model(base, lora)
    model.print_trainable_parameters()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)

    for epoch in range(5):
        model.train()
        total = 0
        for x, y in train_dl:
            out = model(input_ids=x, attention_mask=torch.ones_like(x), labels=y)
            out.loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += out.loss.item()
        model.eval()
        with torch.no_grad():
            acc = sum((model(input_ids=x, attention_mask=torch.ones_like(x)).logits.argmax(-1) == y).sum().item() for x, y in test_dl) / 160
        print(f"epoch {epoch}: loss {total / len(train_dl):.3f} acc {acc:.3f}")


WATCH = ()
