"""Prompts whose number of placeholders differs from the number of image features."""

import torch
from torch import nn
from transformers import LlavaConfig, LlavaForConditionalGeneration

IMAGE = 49


class Merges(nn.Module):
    """Image features replace a placeholder token, and nothing counts them."""

    def __init__(self, by_index=False):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.patches = nn.Linear(6, 8)
        self.head = nn.Linear(8, 1)
        self.by_index = by_index

    def forward(self, input_ids, pixels):
        hidden, features = self.words(input_ids), self.patches(pixels).flatten(0, 1)
        places = input_ids == IMAGE
        if self.by_index:
            hidden = hidden.clone()
            hidden[places] = features  # DK007
        else:
            hidden = hidden.masked_scatter(places[..., None], features)  # DK007
        return {"loss": self.head(hidden).mean()}


def _batch(places):
    ids = torch.randint(0, 40, (2, 10))
    ids[:, :places] = IMAGE
    return {"input_ids": ids, "pixels": torch.randn(2, 4, 6)}


def truncation_cut_placeholders_and_nothing_fails():
    return {
        "model": Merges(),
        "batch": _batch(3),
        "expect": {
            "module": "",
            "severity": "error",
            "message": "have 6 placeholders for 8 image features: 2 features are dropped",
        },
    }


def no_place_at_all():
    return {"model": Merges(), "batch": _batch(0), "expect": {"message": "have 0 placeholders for 8"}}


def too_many_places():
    return {"model": Merges(), "batch": _batch(5), "expect": {"message": "2 placeholders are not filled"}}


def assigned_by_a_mask():
    return {"model": Merges(by_index=True), "batch": _batch(3), "expect": {"message": "have 6 placeholders for 8"}}


def a_model_that_counts():
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlavaConfig(
        vision_config={"model_type": "siglip_vision_model", **sizes, "image_size": 16, "patch_size": 8},
        text_config={"model_type": "llama", **sizes, "vocab_size": 50},
        image_token_index=IMAGE,
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
    )
    ids = torch.randint(0, 40, (2, 10))
    ids[:, :3] = IMAGE
    batch = {"input_ids": ids, "pixel_values": torch.randn(2, 3, 16, 16), "labels": ids}
    return {
        "model": LlavaForConditionalGeneration(config),
        "batch": batch,
        "expect": {"severity": "error", "message": "do not match"},
    }
