"""Models that can overfit a few samples."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration


def _regression(model, batch=12):
    return {
        "model": model,
        "batch": {"state": torch.randn(batch, 4), "action": torch.randn(batch, 2)},
        "loss_fn": lambda model, batch: (model(batch["state"]) - batch["action"]).square().mean(),
    }


def dropout_and_batchnorm():
    return _regression(
        nn.Sequential(nn.Linear(4, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 2)), 24
    )


def two_samples():
    return _regression(nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2)), 2)


class FlowMatching(nn.Module):
    """Training draws new noise and time in each step; the measurement repeats the same ones."""

    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(7, 128), nn.GELU(), nn.Linear(128, 2))

    def forward(self, batch):
        noise, time = torch.randn_like(batch["action"]), torch.rand(len(batch["action"]), 1)
        mixed = time * batch["action"] + (1 - time) * noise
        velocity = self.head(torch.cat([mixed, time, batch["state"]], 1))
        return (velocity - (batch["action"] - noise)).square().mean()


def flow_matching():
    return {**_regression(FlowMatching()), "loss_fn": lambda model, batch: model(batch)}


def causal_language_model():
    config = LlamaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=32
    )
    ids = torch.randint(32, (4, 8))
    return {"model": LlamaForCausalLM(config), "batch": {"input_ids": ids, "labels": ids}}


def encoder_decoder():
    config = T5Config(vocab_size=32, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, decoder_start_token_id=0)
    ids = torch.randint(1, 32, (4, 6))
    return {"model": T5ForConditionalGeneration(config), "batch": {"input_ids": ids, "labels": ids.flip(1)}}


def contrastive():
    model = nn.ModuleDict({"left": nn.Linear(8, 16), "right": nn.Linear(8, 16)})

    def loss(model, batch):
        similarity = model["left"](batch["left"]) @ model["right"](batch["right"]).T
        return F.cross_entropy(similarity, torch.arange(len(similarity)))

    return {"model": model, "batch": {"left": torch.randn(12, 8), "right": torch.randn(12, 8)}, "loss_fn": loss}


def fine_from_the_start():
    """The loss is zero from the start."""
    model = nn.Linear(4, 2)
    batch = torch.randn(12, 4)
    return {"model": model, "batch": batch, "loss_fn": lambda model, state: 0.0 * model(state).sum()}


def likelihood_that_becomes_negative():
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 4))

    def loss(model, batch):
        mean, log_scale = model(batch["state"]).chunk(2, 1)
        return (log_scale + 0.5 * ((batch["action"] - mean) / log_scale.exp()).square()).mean()

    return {**_regression(model), "loss_fn": loss}
