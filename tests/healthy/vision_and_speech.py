"""Image, image-text and speech models of transformers, at toy sizes, and convolutions with batch norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    CLIPConfig,
    CLIPModel,
    SiglipVisionConfig,
    SiglipVisionModel,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from healthy.language_models import VOCABULARY, text
from healthy.program import STEPS, Program, program

VISION = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}


def images(count: int = 4, size: int = 32) -> Tensor:
    """Smooth pictures, normalised to mean 0 and deviation 1 as an image processor does, (B, 3, S, S)."""
    coarse = torch.rand(count, 3, 4, 4)
    picture = F.interpolate(coarse, size=(size, size), mode="bilinear")
    return (picture - 0.5) / 0.25


@program
def vit_classifier() -> Program:
    model = ViTForImageClassification(ViTConfig(**VISION, num_labels=3))
    return Program(model, lambda: {"pixel_values": images(), "labels": torch.tensor([0, 1, 2, 1])})


class RegressionFromImages(nn.Module):
    """SigLIP, pooled, to an action (B, 7); returns a plain tensor."""

    def __init__(self, trainable_tower: bool = True) -> None:
        super().__init__()
        self.tower = SiglipVisionModel(SiglipVisionConfig(**VISION, vision_use_head=False))
        self.tower.requires_grad_(trainable_tower)
        self.head = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 7))

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.tower(pixel_values=pixel_values).last_hidden_state  # (B, P, D)
        return self.head(patches.mean(1))


def regression_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Mean squared error of the action."""
    return F.mse_loss(model(batch["pixel_values"]), batch["action"])


def images_and_actions() -> dict[str, Tensor]:
    """Pictures and a random action for each, (B, 7)."""
    return {"pixel_values": images(), "action": torch.randn(4, 7)}


@program
def siglip_regresses_an_action() -> Program:
    return Program(RegressionFromImages(), images_and_actions, regression_loss)


@program
def frozen_siglip_under_no_grad() -> Program:
    class Frozen(RegressionFromImages):
        def forward(self, pixel_values: Tensor) -> Tensor:
            with torch.no_grad():
                patches = self.tower(pixel_values=pixel_values).last_hidden_state
            return self.head(patches.mean(1))

    return Program(Frozen(trainable_tower=False), images_and_actions, regression_loss)


@program
def clip_contrasts_a_batch() -> Program:
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = CLIPConfig(
        text_config={**tower, "vocab_size": VOCABULARY, "max_position_embeddings": 16, "eos_token_id": 1},
        vision_config={**tower, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )

    def draw() -> dict[str, object]:
        words = text()()
        ids = words["input_ids"].scatter(1, words["attention_mask"].sum(1, keepdim=True) - 1, 1)  # eos
        return {
            "input_ids": ids,
            "attention_mask": words["attention_mask"],
            "pixel_values": images(),
            "return_loss": True,
        }

    return Program(CLIPModel(config), draw)


@program
def whisper_transcribes() -> Program:
    config = WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=8,
        max_source_positions=20,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = WhisperForConditionalGeneration(config)
    return Program(
        model,
        lambda: {"input_features": torch.randn(3, 8, 40), "labels": torch.randint(3, VOCABULARY, (3, 6))},
    )


class ConvolutionsWithBatchNorm(nn.Module):
    """Two convolutions with batch norm and ReLU; returns a tuple (logits, features)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.dropout = nn.Dropout(0.1)
        self.classify = nn.Linear(32, 4)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(pixel_values)
        return self.classify(self.dropout(features)), features


def classification_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Cross entropy of the first thing that the model returns."""
    return F.cross_entropy(model(batch["pixel_values"])[0], batch["labels"])


def images_and_classes() -> dict[str, Tensor]:
    """Eight pictures of four classes."""
    return {"pixel_values": images(8), "labels": torch.arange(8) % 4}


@program
def convolutions_with_batch_norm() -> Program:
    return Program(ConvolutionsWithBatchNorm(), images_and_classes, classification_loss)


@program
def frozen_batch_norm_in_eval() -> Program:
    """The usual way to fine-tune a detector: batch norm keeps the statistics it was pretrained with."""
    model = ConvolutionsWithBatchNorm()
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.eval().requires_grad_(False)

    def train(self: Program) -> None:
        assert isinstance(self.optimizer, torch.optim.Optimizer)
        for _ in range(STEPS):
            model.train()
            for norm in norms:
                norm.eval()
            self.optimizer.zero_grad()
            self.loss(self.draw()).backward()
            self.optimizer.step()

    return Program(model, images_and_classes, classification_loss, train=train)
