"""Models that guess, or that have a reason not to."""

import torch
import torch.nn.functional as F
from torch import nn

import debugkit

_LLAMA = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
}


def _text():
    ids = torch.randint(3, 60, (3, 8))
    return {"input_ids": ids, "labels": ids}


def fresh_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return {"model": LlamaForCausalLM(LlamaConfig(**_LLAMA)), "batch": _text()}


def fresh_llama_on_a_text_of_one_token():
    from transformers import LlamaConfig, LlamaForCausalLM

    ids = torch.full((3, 8), 7)
    return {"model": LlamaForCausalLM(LlamaConfig(**_LLAMA)), "batch": {"input_ids": ids, "labels": ids}}


def fresh_gpt2_with_tied_weights():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=1, n_head=4, bos_token_id=1, eos_token_id=2)
    return {"model": GPT2LMHeadModel(config), "batch": _text()}


def plain_classifier():
    return {
        "model": nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)),
        "batch": {"x": torch.randn(32, 4), "labels": torch.randint(0, 2, (32,))},
        "loss_fn": lambda model, batch: F.cross_entropy(model(batch["x"]), batch["labels"]),
    }


def contrastive_loss_over_the_batch():
    class TwoTowers(nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.text = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, image, text):
            similarity = F.normalize(self.image(image), dim=-1) @ F.normalize(self.text(text), dim=-1).T
            logits = 100 * similarity
            return {"loss": F.cross_entropy(logits, torch.arange(len(logits)))}

    return {"model": TwoTowers(), "batch": {"image": torch.randn(8, 6), "text": torch.randn(8, 6)}}


def vocabulary_masked_to_a_few_words():
    def loss_fn(model, batch):
        logits = model(batch["x"])
        allowed = torch.zeros(1000, dtype=torch.bool)
        allowed[:300] = True
        return F.cross_entropy(logits.masked_fill(~allowed, -1e9), batch["labels"])

    batch = {"x": torch.randn(16, 4), "labels": torch.randint(0, 300, (16,))}
    return {"model": nn.Linear(4, 1000), "batch": batch, "loss_fn": loss_fn}


def trained_model_on_other_data():
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 5))
    model[1].weight.data.uniform_(0.5, 20)
    return {
        "model": model,
        "batch": {"x": torch.randn(16, 4), "labels": torch.randint(0, 5, (16,))},
        "loss_fn": lambda model, batch: F.cross_entropy(model(batch["x"]), batch["labels"]),
        "expect": {"not_examined": "the weights of 1 differ"},
    }


def declared_as_pretrained():
    model = nn.Linear(4, 5)
    model.weight.data *= 100
    return {
        "model": model,
        "batch": {"x": torch.randn(16, 4), "labels": torch.randint(0, 5, (16,))},
        "loss_fn": lambda model, batch: F.cross_entropy(model(batch["x"]), batch["labels"]),
        "declare": debugkit.Declare(pretrained=True),
        "expect": {"not_examined": "declared as loaded"},
    }


def regression():
    return {
        "model": nn.Linear(4, 5),
        "batch": torch.randn(16, 4),
        "loss_fn": lambda model, batch: 100 * model(batch).square().mean(),
        "expect": {"not_examined": "not a cross_entropy"},
    }
