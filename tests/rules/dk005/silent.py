"""Modules whose tensors all move with them or are created again in each step."""

import warnings

import torch
from torch import nn
from torch.nn.utils import prune
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    SiglipVisionConfig,
    SiglipVisionModel,
    T5Config,
    T5ForConditionalGeneration,
)

_SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}


def _text(model):
    ids = torch.randint(0, 50, (2, 6))
    return {"model": model, "batch": {"input_ids": ids, "labels": ids}}


def llama():
    return _text(LlamaForCausalLM(LlamaConfig(**_SIZES, vocab_size=50)))


def llama_with_long_context_rope():
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
    return _text(LlamaForCausalLM(LlamaConfig(**_SIZES, vocab_size=50, rope_parameters=rope)))


def mixtral():
    config = MixtralConfig(**_SIZES, vocab_size=50, num_key_value_heads=2, num_local_experts=4)
    return _text(MixtralForCausalLM(config))


def bert():
    return _text(BertForMaskedLM(BertConfig(**_SIZES, vocab_size=50)))


def t5():
    config = T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0)
    return _text(T5ForConditionalGeneration(config))


def siglip():
    return {
        "model": SiglipVisionModel(SiglipVisionConfig(**_SIZES, image_size=16, patch_size=8)),
        "batch": {"pixel_values": torch.randn(2, 3, 16, 16)},
        "loss_fn": lambda model, batch: model(**batch).pooler_output.square().mean(),
    }


def weights_recomputed_from_others():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(
            nn.utils.weight_norm(nn.Linear(4, 4)),
            nn.utils.spectral_norm(nn.Linear(4, 4)),
            nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
        )
    prune.l1_unstructured(model[0], "bias", amount=2)
    return {"model": model, "batch": torch.randn(3, 4), "loss_fn": lambda model, batch: model(batch).mean()}


def recurrent_layers_alias_their_weights():
    model = nn.LSTM(4, 4, num_layers=2)
    return {"model": model, "batch": torch.randn(3, 2, 4), "loss_fn": lambda model, batch: model(batch)[0].mean()}


class KeepsTheLastAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 1)
        self.last = None
        self.temperature = torch.tensor(0.5)
        self.register_buffer("scale", torch.ones(4), persistent=False)

    def forward(self, x):
        self.last = (x * self.scale).detach()
        return {"loss": self.head(x / self.temperature).mean()}


def recreated_each_step():
    model = KeepsTheLastAttention()
    model(torch.randn(3, 4))
    return {"model": model, "batch": {"x": torch.randn(3, 4)}}


class MovesItsTable(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = [torch.randn(4), torch.randn(4)]
        self.head = nn.Linear(4, 1)

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self.tables = [fn(table) for table in self.tables]
        return self

    def forward(self, x):
        return {"loss": self.head(x + self.tables[0] * self.tables[1]).mean()}


def tensors_that_a_module_moves_itself():
    return {"model": MovesItsTable(), "batch": {"x": torch.randn(3, 4)}}
