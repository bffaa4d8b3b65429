"""The policy, from pixels to action: vision tower → projector → language model → action head.

    pixel_values (B, 3, 64, 64) ── SigLIP ── (B, P, V) ── projector ── (B, P, D) ┐
    input_ids (B, L) ───────────── token embedding ──────────────────── (B, L, D) ├─ Llama ─ last token (B, D) ─ head
    state (B, 3) ───────────────── proprioception ───────────────────── (B, 1, D) ┘                          (B, H, A)

Notable choices
- One causal sequence: patches, instruction, state. The state comes last, so its hidden state attends to everything, and
  the head reads only that.
- Hugging Face's convention: `policy(**batch).loss` trains, and without `action` the same call predicts.
- Each part is a method, so a policy that differs in one part overrides one method.
- Sized for a laptop's CPU: 180,000 parameters. `PolicyConfig.smolvla_sized()` is the same code with 450 million.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers.utils import ModelOutput

from labs.vla.heads import HEADS, ActionHead
from labs.vla.language import VOCABULARY
from labs.vla.language_model import build_language_model, position_ids_from_mask
from labs.vla.randomness import private_randomness
from labs.vla.vision import Projector, build_vision_tower

BASE_CHECKPOINT = Path(__file__).with_name("base.safetensors")


@dataclass(frozen=True)
class PolicyConfig:
    """The sizes of a policy's parts; `tiny()` is the default of the labs."""

    image_size: int = 64
    patch_size: int = 16
    vision_width: int = 64
    vision_mlp_width: int = 128
    vision_layers: int = 1
    vision_heads: int = 4
    vocabulary_size: int = len(VOCABULARY)
    width: int = 64
    mlp_width: int = 128
    layers: int = 2
    heads: int = 4
    key_value_heads: int = 4
    max_positions: int = 256
    state_dim: int = 3
    action_dim: int = 3
    horizon: int = 4
    """Actions in a chunk."""
    head: str = "regression"
    """`regression`, `tokens` or `flow_matching`."""

    @classmethod
    def tiny(cls) -> PolicyConfig:
        """180,000 parameters: trains in seconds on one CPU core."""
        return cls()

    @classmethod
    def smolvla_sized(cls) -> PolicyConfig:
        """About 450 million parameters, as SmolVLA has (arXiv:2506.01844).

        It uses SmolVLA's vision tower sizes and all 32 layers of SmolLM2-360M, not half of them plus an action expert.
        """
        return cls(
            image_size=512,
            vision_width=768,
            vision_mlp_width=3072,
            vision_layers=12,
            vision_heads=12,
            vocabulary_size=49_280,
            width=960,
            mlp_width=2560,
            layers=32,
            heads=15,
            key_value_heads=5,
            max_positions=2048,
            state_dim=32,
            action_dim=32,
            horizon=50,
        )


@dataclass
class PolicyOutput(ModelOutput):
    """`loss`, a scalar, if actions were given; else `action` (B, H, A) in environment units."""

    loss: Tensor | None = None
    action: Tensor | None = None


class Policy(nn.Module):
    """A vision-language-action policy; `Policy.from_base()` starts from the pretrained vision-language part."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__()
        self.config = config or PolicyConfig.tiny()
        self.vision = build_vision_tower(self.config)
        self.projector = Projector(self.config.vision_width, self.config.width)
        self.language_model = build_language_model(self.config)
        self.proprioception = nn.Linear(self.config.state_dim, self.config.width)
        self.head = self.build_head()
        self.action_statistics = self.head.statistics()

    def build_head(self) -> ActionHead:
        """The head named by `config.head`."""
        if self.config.head not in HEADS:
            raise ValueError(f"There is no action head {self.config.head!r}. Choose one of: {', '.join(HEADS)}.")
        return HEADS[self.config.head](self.config.width, self.config.horizon, self.config.action_dim)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.proprioception.weight.device

    def forward(
        self,
        pixel_values: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        state: Tensor,
        action: Tensor | None = None,
        action_is_pad: Tensor | None = None,
    ) -> PolicyOutput:
        """The training loss if `action` (B, H, A), in environment units, is given; else the predicted chunk."""
        feature = self.encode(pixel_values, input_ids, attention_mask, state)  # (B, D)
        if action is None:
            return PolicyOutput(action=self.decode(feature))
        if action_is_pad is None:
            action_is_pad = torch.zeros(action.shape[:2], dtype=torch.bool, device=action.device)
        return PolicyOutput(loss=self.loss(feature, action, action_is_pad))

    @torch.no_grad()
    def predict(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The action chunk for observations, (B, H, A) in environment units; ignores the batch's actions."""
        feature = self.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
        return self.decode(feature)

    def encode(self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor) -> Tensor:
        """The feature that the head reads: the hidden state of the last token, the robot's state, (B, D)."""
        embeddings, mask = self.embed_prefix(pixel_values, input_ids, attention_mask, state)
        return self.run_language_model(embeddings, mask)[:, -1]

    def embed_prefix(
        self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One sequence of patches, instruction and state: embeddings (B, P+L+1, D) and their mask (B, P+L+1)."""
        return self.join_prefix(self.embed_images(pixel_values), input_ids, attention_mask, state)

    def join_prefix(
        self, images: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Put embedded images (B, P, D) before instruction and state, and mask out only padding."""
        words = self.embed_instruction(input_ids)  # (B, L, D)
        own = self.embed_state(state)  # (B, 1, D)
        seen = attention_mask.new_ones(images.shape[:2])  # (B, P)
        last = attention_mask.new_ones(own.shape[:2])  # (B, 1)
        return torch.cat([images, words, own], dim=1), torch.cat([seen, attention_mask, last], dim=1)

    def embed_images(self, pixel_values: Tensor) -> Tensor:
        """Image patches as inputs of the language model: (B, 3, 64, 64) to (B, P, D)."""
        features = self.vision(pixel_values=pixel_values).last_hidden_state  # (B, P, V)
        return self.projector(features)

    def embed_instruction(self, input_ids: Tensor) -> Tensor:
        """Token embeddings, (B, L) to (B, L, D)."""
        return self.language_model.embed_tokens(input_ids)

    def embed_state(self, state: Tensor) -> Tensor:
        """The robot's own state as one token, (B, S) to (B, 1, D)."""
        return self.proprioception(state.to(self.proprioception.weight.dtype))[:, None]

    def run_language_model(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Hidden states of the whole sequence, (B, T, D). Positions count only unmasked tokens."""
        return self.language_model(
            inputs_embeds=embeddings, attention_mask=mask, position_ids=position_ids_from_mask(mask)
        ).last_hidden_state

    def loss(self, feature: Tensor, action: Tensor, action_is_pad: Tensor) -> Tensor:
        """The head's loss on normalised actions, a scalar."""
        return self.head.loss(feature, self.action_statistics.normalize(action), action_is_pad)

    def decode(self, feature: Tensor) -> Tensor:
        """Actions in environment units from the feature, (B, D) to (B, H, A)."""
        return self.action_statistics.unnormalize(self.head.predict(feature))

    @classmethod
    def from_base(
        cls,
        config: PolicyConfig | None = None,
        head: str = "regression",
        seed: int = 0,
        reinitialise: Collection[str] = (),
    ) -> Self:
        """Start from the pretrained base: its vision-language part, and a new action head initialised from `seed`.

        `reinitialise` names parts that are also initialised from `seed` instead of loaded, of `vision`, `projector`,
        `language_model`, `proprioception`. The caller's random state does not change. Raises ValueError if the sizes in
        the checkpoint and the config differ.
        """
        config = replace(config or PolicyConfig.tiny(), head=head)
        with private_randomness(seed):
            policy = cls(config)
        load_base(policy, skip=reinitialise)
        return policy


OBSERVATION_KEYS = ("pixel_values", "input_ids", "attention_mask", "state")
BASE_PARTS = ("vision", "projector", "language_model", "proprioception")


def load_base(policy: Policy, path: Path = BASE_CHECKPOINT, skip: Collection[str] = ()) -> None:
    """Load the pretrained parts into `policy`, except those named in `skip`.

    Raises ValueError for an unknown part or other sizes, RuntimeError for missing tensors or tensors of another shape.
    """
    unknown = set(skip) - set(BASE_PARTS)
    if unknown:
        raise ValueError(f"There is no part {sorted(unknown)} to reinitialise. Parts: {', '.join(BASE_PARTS)}.")
    with safe_open(path, framework="pt") as file:
        pretrained = json.loads(file.metadata()["config"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    asked = asdict(policy.config)
    different = [
        f"{name} {asked[name]}, not {pretrained[name]}" for name in pretrained if asked[name] != pretrained[name]
    ]
    if different:
        raise ValueError(f"{path.name} was pretrained at other sizes than this config's: {'; '.join(different)}.")
    for part in BASE_PARTS:
        if part not in skip:
            prefix = part + "."
            own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
            policy.get_submodule(part).load_state_dict(own, strict=True)
