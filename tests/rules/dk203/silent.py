"""Large numbers that are masks, are not float16, or are far enough from its maximum."""

import torch
from torch import nn


class MaskedScores(nn.Module):
    """Returns its masked scores, as a router or a hand-written attention does."""

    def __init__(self, fill, additive=False):
        super().__init__()
        self.score = nn.Linear(8, 6)
        self.fill, self.additive = fill, additive

    def forward(self, hidden):
        scores, later = self.score(hidden), torch.ones(4, 6, dtype=torch.bool).triu(2)
        if self.additive:
            return scores + later.to(scores.dtype) * self.fill
        return scores.masked_fill(later, self.fill)


def _masked(fill, additive=False, dtype=torch.float16):
    return {
        "model": nn.Sequential(MaskedScores(fill, additive), nn.Softmax(-1)).to(dtype),
        "batch": torch.randn(4, 8).to(dtype),
        "loss_fn": lambda model, batch: model(batch).float().square().mean(),
    }


def mask_of_minus_infinity():
    return _masked(float("-inf"))


def mask_of_the_smallest_number():
    return _masked(torch.finfo(torch.float16).min)


def mask_of_half_the_smallest_number():
    return _masked(torch.finfo(torch.float16).min / 2)


def mask_of_the_smallest_float32():
    return _masked(torch.finfo(torch.float32).min, dtype=torch.float32)


def mask_of_the_smallest_bfloat16():
    return _masked(torch.finfo(torch.bfloat16).min, dtype=torch.bfloat16)


def additive_mask_of_minus_ten_thousand():
    return _masked(-1e4, additive=True)


def mask_of_a_billion_in_float32():
    return _masked(-1e9, dtype=torch.float32)


def large_values_in_float32():
    model = nn.Linear(8, 2)
    return {
        "model": model,
        "batch": torch.randn(4, 8) * 1e6,
        "loss_fn": lambda model, batch: model(batch).square().mean(),
    }


def large_values_in_bfloat16_under_autocast():
    def loss_fn(model, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(batch).float().mean()

    return {"model": nn.Linear(8, 2), "batch": torch.randn(4, 8) * 1e6, "loss_fn": loss_fn}


def a_norm_takes_the_large_value_in_float32():
    """Under autocast a layer norm runs in float32, so its input is not converted."""

    def loss_fn(model, batch):
        with torch.autocast("cpu", dtype=torch.float16):
            return model(batch).float().mean()

    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 2))
    return {"model": model, "batch": torch.randn(4, 8) * 1e6, "loss_fn": loss_fn}


def pixels_in_float16():
    return {
        "model": nn.Conv2d(3, 4, 3).half(),
        "batch": torch.randint(0, 256, (2, 3, 8, 8)).half(),
        "loss_fn": lambda model, batch: model(batch).float().mean(),
    }


def values_that_are_infinite_already():
    """DK201 reports those."""
    model = nn.Linear(4, 4, bias=False).half()
    nn.init.constant_(model.weight, 6e4)
    return {
        "model": model,
        "batch": torch.full((2, 4), 100.0).half(),
        "loss_fn": lambda model, batch: model(batch).float().mean(),
    }


def a_tiny_t5_in_float16():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=40, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
    )  # fmt: skip
    ids = torch.randint(1, 40, (2, 7))
    mask = torch.ones_like(ids)
    mask[0, 4:] = 0
    return {
        "model": T5ForConditionalGeneration(config).half(),
        "batch": {"input_ids": ids, "attention_mask": mask, "labels": ids},
    }


def a_tiny_llama_under_autocast():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, attn_implementation="eager",
    )  # fmt: skip
    ids = torch.randint(1, 40, (2, 7))
    mask = torch.ones_like(ids)
    mask[0, :3] = 0

    def loss_fn(model, batch):
        with torch.autocast("cpu", dtype=torch.float16):
            return model(**batch).loss

    return {
        "model": LlamaForCausalLM(config),
        "batch": {"input_ids": ids, "attention_mask": mask, "labels": ids},
        "loss_fn": loss_fn,
    }
