"""A policy for robots with one camera or several: placeholders in the prompt say where each image goes.

    the first image │ the instruction            │ the other images │ padding   │ the state
    <image> × 16    │ <bos> please reach the ... │ <image> × 16 ... │ <pad> ... │
    └───────────── a prompt, 40 tokens ───────────────────────────────────────┘ └ 1 ┘

A placeholder `<image>` stands for an image, and is repeated once for each patch that the vision tower returns. In the
policy, the features of the patches take the places of the placeholders, as in Qwen-VL and SmolVLM.

Notable choices
- Every prompt has `MAX_LENGTH` tokens, whatever the instruction and the number of cameras: the robot runs a language
  model that was compiled for this length.
- People talk. A prompt that is too long loses the last words of its instruction, as few as possible; `<bos>` and the
  images stay whole. The first words are the ones that say what to do.
- The order is the one with which the robots' policies were trained: one image before the instruction, the others after.
- The state comes last, so its hidden state attends to everything. It is no part of the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from labs.vla.dataset import Batch
from labs.vla.language import BOS_ID, PAD_ID, TOKEN_ID
from labs.vla.policy import Policy
from labs.vla.vision import normalize_pixels

MAX_LENGTH = 40
"""Tokens in a prompt."""
PATCHES = 16
"""Features of one image: the vision tower divides it into 4 × 4 patches."""
IMAGE_ID = -200
"""A placeholder. No row of the embedding table belongs to it: a feature takes its place."""


def encode_prompts(instructions: Sequence[str], cameras: int, max_length: int = MAX_LENGTH) -> tuple[Tensor, Tensor]:
    """Turn sentences into `input_ids` and `attention_mask`, int64 (B, `max_length`), with places for `cameras` images.

    Raises ValueError if the images leave no token for the instruction.
    """
    if cameras * PATCHES >= max_length:
        raise ValueError(
            f"{cameras} images need {cameras * PATCHES} of the {max_length} tokens of a prompt, which leaves none for "
            "the instruction. Use fewer cameras or a higher `max_length`."
        )
    input_ids = torch.full((len(instructions), max_length), PAD_ID)
    for row, instruction in enumerate(instructions):
        words = [BOS_ID, *(TOKEN_ID[word] for word in instruction.split())]
        prompt = expand([IMAGE_ID, *words, *[IMAGE_ID] * (cameras - 1)])[:max_length]
        input_ids[row, : len(prompt)] = torch.tensor(prompt)
    return input_ids, (input_ids != PAD_ID).long()


def expand(template: Iterable[int]) -> list[int]:
    """Repeat every placeholder for the patches of its image."""
    prompt: list[int] = []
    for token in template:
        prompt.extend([token] * PATCHES if token == IMAGE_ID else [token])
    return prompt


def observation_batch(images: Tensor, state: Tensor, instructions: Sequence[str]) -> Batch:
    """A policy's inputs from uint8 images (B, C, 64, 64, 3) of C cameras, states (B, 3) and B sentences.

    `pixel_values` is (B, C, 3, 64, 64), in the order of the cameras: the first one is above the table.
    """
    pixel_values = normalize_pixels(images.flatten(0, 1)).unflatten(0, images.shape[:2])
    input_ids, attention_mask = encode_prompts(instructions, cameras=images.shape[1])
    return {"pixel_values": pixel_values, "input_ids": input_ids, "attention_mask": attention_mask, "state": state}


class CamerasPolicy(Policy):
    """The base policy on the images of several cameras: `policy(**batch).loss` to train it, `predict(batch)` to act."""

    def embed_prefix(
        self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The prompt with its images, and the state: embeddings (B, L+1, D) and their mask (B, L+1).

        Raises ValueError unless there is a placeholder for every patch.
        """
        features = self.embed_images(pixel_values.flatten(0, 1)).flatten(0, 1)  # (B * C * P, D)
        places = input_ids == IMAGE_ID  # (B, L)
        if places.sum() != len(features):
            raise ValueError(
                f"Image features and image tokens do not match: tokens {int(places.sum())}, features {len(features)}"
            )
        words = self.embed_instruction(input_ids.masked_fill(places, PAD_ID))  # (B, L, D)
        prompt = words.masked_scatter(places[..., None], features)  # in the order of the rows and of their places
        own = self.embed_state(state)  # (B, 1, D)
        last = attention_mask.new_ones(own.shape[:2])  # (B, 1)
        return torch.cat([prompt, own], dim=1), torch.cat([attention_mask, last], dim=1)


def build_policy(seed: int) -> CamerasPolicy:
    """The pretrained base with a fresh head, drawn from `seed`."""
    return CamerasPolicy.from_base(seed=seed)
