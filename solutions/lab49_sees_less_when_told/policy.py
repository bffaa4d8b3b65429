"""A policy that tells its vision tower what to look for: FiLM, as in OpenVLA-OFT (arXiv:2502.19645).

    pixel_values (B, 3, 64, 64) ── vision tower ── (B, P, V) ── * (1 + scale) + shift ── projector ── (B, P, D)
    input_ids (B, L) ── word embeddings ── their mean (B, D) ────────┴───────────┘

Notable choices
- Scale and shift begin at zero: an untrained policy of this kind acts exactly as one without them.
- Padding is no word, so it does not count in the mean.
- The policy can be trained to answer in words, too: `answer` scores each of them. The scores use the word embeddings
  themselves, as in PaliGemma: `word_head.weight` and `language_model.embed_tokens.weight` are one tensor, and stay so.
- A checkpoint has the names of the policy without FiLM, which saved it (`labs/vla/policy.py`). A tensor of two modules
  may be in it once, under either of the two names, or under both.
- What a checkpoint does not have, `NEW`, is initialised from the seed. All else must come from the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor, nn

from labs.vla.policy import BASE_CHECKPOINT, OBSERVATION_KEYS, Policy, PolicyConfig
from labs.vla.randomness import private_randomness

NEW = ("head.", "action_statistics.", "vision.scale.", "vision.shift.")
"""How the names of the tensors begin that were not pretrained."""


class InstructedTower(nn.Module):
    """A vision tower whose features (B, P, V) an instruction (B, D) scales and shifts, channel by channel."""

    def __init__(self, tower: nn.Module, config: PolicyConfig) -> None:
        super().__init__()
        self.tower = tower
        self.scale = nn.Linear(config.width, config.vision_width)
        self.shift = nn.Linear(config.width, config.vision_width)
        for layer in (self.scale, self.shift):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, pixel_values: Tensor, instruction: Tensor) -> Tensor:
        """Features of the images, as far as the instruction asks for them."""
        features = self.tower(pixel_values=pixel_values).last_hidden_state  # (B, P, V)
        return features * (1 + self.scale(instruction)[:, None]) + self.shift(instruction)[:, None]


class InstructedPolicy(Policy):
    """The policy with FiLM, and with a head that scores words."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.vision = InstructedTower(self.vision, self.config)
        self.word_head = nn.Linear(self.config.width, self.config.vocabulary_size, bias=False)
        self.word_head.weight = self.language_model.embed_tokens.weight

    def embed_prefix(
        self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One sequence of patches, instruction and state; the instruction decides on the features of the patches."""
        instruction = mean_word(self.embed_instruction(input_ids), attention_mask)  # (B, D)
        images = self.projector(self.vision(pixel_values, instruction))  # (B, P, D)
        return self.join_prefix(images, input_ids, attention_mask, state)

    def answer(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The scores of all words as the answer to an instruction, (B, vocabulary)."""
        return self.word_head(self.encode(**{name: batch[name] for name in OBSERVATION_KEYS}))


def mean_word(words: Tensor, attention_mask: Tensor) -> Tensor:
    """The mean of an instruction's embeddings (B, L, D), without its padding: (B, D). No words: zeros."""
    real = attention_mask[..., None].to(words.dtype)  # (B, L, 1)
    return (words * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)


def load_checkpoint(policy: InstructedPolicy, path: Path = BASE_CHECKPOINT) -> None:
    """Copy every tensor of a checkpoint into its place in the policy.

    Raises an error that names the tensor, if one of the checkpoint has no place in the policy or another shape there,
    or if one of the policy is neither in the checkpoint nor new.
    """
    saved = {inside_the_wrapper(name): tensor for name, tensor in load_file(path).items()}
    own = policy.state_dict(keep_vars=True)
    loaded = {id(own[name]) for name in saved if name in own}  # a tensor with two names counts under both
    missing = [name for name in own if id(own[name]) not in loaded and not name.startswith(NEW)]
    unexpected = [name for name in saved if name not in own]
    if missing or unexpected:
        raise RuntimeError(f"{path.name} does not fit: {missing=}, {unexpected=}.")
    policy.load_state_dict(saved, strict=False)


def inside_the_wrapper(name: str) -> str:
    """The name of a checkpoint's tensor in this policy, in which another module is around the vision tower."""
    return name.replace("vision.", "vision.tower.", 1) if name.startswith("vision.") else name


def build_policy(seed: int, path: Path = BASE_CHECKPOINT) -> InstructedPolicy:
    """The pretrained base with FiLM; what is new is drawn from `seed`. The caller's random state does not change."""
    with private_randomness(seed):
        policy = InstructedPolicy()
    load_checkpoint(policy, path)
    return policy
