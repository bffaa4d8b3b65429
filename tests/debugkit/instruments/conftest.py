"""Tiny models of the real classes: SigLIP with Llama, pi0, Mixtral; built once a test, small enough for a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn


class TinyVLA(nn.Module):
    """SigLIP → projector → Llama → action head; `bridge` stands between the tower and the projector."""

    def __init__(self, bridge: Callable[[Tensor], Tensor] = lambda v: v) -> None:
        from transformers import LlamaConfig, LlamaModel, SiglipVisionConfig, SiglipVisionModel

        super().__init__()
        self.vision = SiglipVisionModel(
            SiglipVisionConfig(
                hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                image_size=32, patch_size=16, vision_use_head=False,
            )
        )  # fmt: skip
        self.projector = nn.Linear(32, 48)
        self.language = LlamaModel(
            LlamaConfig(
                vocab_size=50, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                num_key_value_heads=2, pad_token_id=0,
            )
        )  # fmt: skip
        self.head = nn.Linear(48, 7)
        self.bridge = bridge

    def forward(self, pixel_values: Tensor, input_ids: Tensor, action: Tensor) -> dict[str, Tensor]:
        seen = self.projector(self.bridge(self.vision(pixel_values=pixel_values).last_hidden_state))  # (B, P, D)
        words = self.language.embed_tokens(input_ids)  # (B, L, D)
        hidden = self.language(inputs_embeds=torch.cat([seen, words], dim=1), use_cache=False).last_hidden_state
        predicted = self.head(hidden[:, -1])  # (B, 7)
        return {"loss": (predicted - action).pow(2).mean(), "action": predicted}


def _vla_batch() -> dict[str, Tensor]:
    return {
        "pixel_values": torch.randn(2, 3, 32, 32),
        "input_ids": torch.randint(1, 50, (2, 5)),
        "action": torch.randn(2, 7),
    }


def _pi0() -> tuple[nn.Module, dict[str, Any]]:
    """A pi0 of two layers; its batch holds one camera and six tokens, four of them the image's."""
    from transformers import PI0Config, PI0ForConditionalGeneration

    text = {
        "model_type": "gemma", "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 64,
    }  # fmt: skip
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": 32, "patch_size": 16, "vision_use_head": False,
    }  # fmt: skip
    config = PI0Config(
        vlm_config={
            "model_type": "paligemma", "text_config": text, "vision_config": vision, "projection_dim": 32,
            "image_token_id": 63, "image_token_index": 63,
        },
        dit_config={**text, "hidden_size": 16},
        chunk_size=4, max_state_dim=3, max_action_dim=3,
    )  # fmt: skip
    batch = {
        "state": torch.randn(2, 3),
        "input_ids": torch.tensor([[63, 63, 63, 63, 5, 6]] * 2),
        "attention_mask": torch.ones(2, 6, dtype=torch.long),
        "pixel_values": torch.randn(2, 1, 3, 32, 32),
        "pixel_attention_mask": torch.ones(2, 1, dtype=torch.bool),
        "actions": torch.randn(2, 4, 3),
    }
    return PI0ForConditionalGeneration(config), batch


def _mixtral() -> tuple[nn.Module, dict[str, Tensor]]:
    """Eight experts, two a token, three tokens: some experts are never called."""
    from transformers import MixtralConfig, MixtralForCausalLM

    model = MixtralForCausalLM(
        MixtralConfig(
            vocab_size=50, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2, use_cache=False,
        )
    )  # fmt: skip
    ids = torch.tensor([[1, 2, 3]])
    return model, {"input_ids": ids, "labels": ids}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def tiny_vla() -> Callable[..., tuple[nn.Module, dict[str, Tensor]]]:
    """`tiny_vla(bridge)` → a model and its batch."""
    return lambda *bridge: (TinyVLA(*bridge), _vla_batch())


@pytest.fixture
def tiny_pi0() -> tuple[nn.Module, dict[str, Any]]:
    return _pi0()


@pytest.fixture
def tiny_mixtral() -> tuple[nn.Module, dict[str, Tensor]]:
    return _mixtral()
