"""Forward passes that run, and passes that raise for another reason."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration


def language_model():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=60, n_embd=16, n_layer=2, n_head=2, n_positions=16))
    ids = torch.randint(0, 60, (2, 8))
    return {"model": model, "batch": {"input_ids": ids, "labels": ids}}


def encoder_decoder():
    config = T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0)
    ids = torch.randint(0, 60, (2, 8))
    return {"model": T5ForConditionalGeneration(config), "batch": {"input_ids": ids, "labels": ids}}


class Fallback(nn.Module):
    """The model expects a shape that does not fit, and handles it."""

    def __init__(self):
        super().__init__()
        self.fast, self.slow = nn.Linear(9, 4), nn.Linear(4, 4)

    def forward(self, x):
        try:
            return {"loss": self.fast(x).mean()}
        except RuntimeError:
            return {"loss": self.slow(x).mean()}


def failure_that_the_model_handles():
    return {"model": Fallback(), "batch": {"x": torch.randn(2, 4)}}


def broadcast_on_purpose():
    def loss_fn(model, batch):
        return (model(batch)[:, None] - batch[None]).square().mean()

    return {"model": nn.Linear(3, 3), "batch": torch.randn(4, 3), "loss_fn": loss_fn}


def wrong_dtype_is_another_rule():
    return {"model": nn.Linear(3, 3), "batch": torch.randn(4, 3).double(), "loss_fn": lambda m, b: m(b).mean()}


def id_beyond_the_embedding_is_another_rule():
    return {"model": nn.Embedding(5, 3), "batch": torch.tensor([[9]]), "loss_fn": lambda m, b: m(b).mean()}


def key_error_is_none():
    return {"model": nn.Linear(3, 3), "batch": {"x": torch.ones(2, 3)}, "loss_fn": lambda m, b: m(b["size"]).mean()}


def label_beyond_the_classes_is_another_rule():
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch), torch.tensor([0, 7]))

    return {"model": nn.Linear(3, 3), "batch": torch.randn(2, 3), "loss_fn": loss_fn}
