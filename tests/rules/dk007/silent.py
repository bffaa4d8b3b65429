"""Merges with equal counts, and masked writes that are no merge."""

import torch
from torch import nn
from transformers import LlavaConfig, LlavaForConditionalGeneration

IMAGE = 49


def _ids(places):
    ids = torch.randint(0, 40, (2, 10))
    for row, count in enumerate(places):
        ids[row, :count] = IMAGE
    return ids


def a_model_that_counts():
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlavaConfig(
        vision_config={"model_type": "siglip_vision_model", **sizes, "image_size": 16, "patch_size": 8},
        text_config={"model_type": "llama", **sizes, "vocab_size": 50},
        image_token_index=IMAGE,
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
    )
    ids = _ids((4, 4))
    batch = {"input_ids": ids, "pixel_values": torch.randn(2, 3, 16, 16), "labels": ids}
    return {"model": LlavaForConditionalGeneration(config), "batch": batch}


class Merges(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.patches = nn.Linear(6, 8)
        self.mask_token = nn.Parameter(torch.zeros(1, 8))
        self.head = nn.Linear(8, 1)

    def forward(self, input_ids, pixels):
        places = input_ids == IMAGE
        hidden = self.words(input_ids).masked_scatter(places[..., None], self.patches(pixels))
        hidden = hidden.clone()
        hidden[torch.rand(places.shape) < 0.5] = self.mask_token  # masked modelling: one row for all places
        noise = torch.randn_like(hidden)
        hidden = hidden.masked_scatter(places[..., None].expand_as(hidden), noise)
        return {"loss": self.head(hidden).mean()}


def one_sample_with_two_images_and_one_with_none():
    return {"model": Merges(), "batch": {"input_ids": _ids((8, 0)), "pixels": torch.randn(2, 4, 6)}}


class Concatenates(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.patches, self.head = nn.Embedding(50, 8), nn.Linear(6, 8), nn.Linear(8, 1)

    def forward(self, input_ids, pixels):
        return {"loss": self.head(torch.cat([self.patches(pixels), self.words(input_ids)], 1)).mean()}


def features_in_front_of_the_text():
    return {"model": Concatenates(), "batch": {"input_ids": _ids((0, 0)), "pixels": torch.randn(2, 4, 6)}}


class DropsSomeElements(nn.Module):
    """A mask over single elements, which are replaced by noise as in denoising."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)

    def forward(self, tokens, noise):
        mask = torch.rand(tokens.shape) < 0.3
        return {"loss": self.head(tokens.masked_scatter(mask, noise)).mean()}


def noise_in_single_elements():
    return {
        "model": DropsSomeElements(),
        "batch": {"tokens": torch.randn(2, 5, 8), "noise": torch.randn(1, 10, 8)},
    }
