"""The policy with FiLM as lab 49's docstring describes it, for its checks; without the learner's names and wrapper."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from labs.grading import Rng
from labs.invariants import WORDS, random_batch
from labs.vla.policy import OBSERVATION_KEYS, Policy, PolicyConfig


class Reference(Policy):
    """The stock policy with FiLM's scale and shift, which are zero like a new policy's until `film` is set."""

    film: Mapping[str, Tensor] | None = None

    @classmethod
    def holding(cls, saved: Mapping[str, Tensor], seed: int, film: Mapping[str, Tensor] | None = None) -> Reference:
        """A policy of this seed with the tensors of a checkpoint."""
        reference = cls.from_base(seed=seed)
        reference.load_state_dict({**reference.state_dict(), **saved})
        if film is not None:
            reference.film = {name: value.clone().requires_grad_() for name, value in film.items()}
        return reference

    def embed_prefix(
        self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """With the mean of the real words scaling and shifting each channel of the tower's features."""
        features = self.vision(pixel_values=pixel_values).last_hidden_state
        if self.film is not None:
            words = self.embed_instruction(input_ids)
            rows = zip(words, attention_mask, strict=True)
            mean = torch.stack([row[: int(real.sum())].sum(dim=0) / max(1, int(real.sum())) for row, real in rows])
            scale, shift = (mean @ self.film[f"{name}.weight"].T + self.film[f"{name}.bias"] for name in _FILM)
            features = features + scale[:, None] * features + shift[:, None]
        return self.join_prefix(self.projector(features), input_ids, attention_mask, state)

    def answer(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The scores of all words: the feature that the head reads, times each word's embedding."""
        feature = self.encode(**{name: batch[name] for name in OBSERVATION_KEYS})
        return feature @ self.language_model.embed_tokens.weight.T

    def gradients(self) -> dict[str, Tensor]:
        """All gradients, FiLM's under the names that they have in the learner's policy."""
        own = {name: value.grad for name, value in self.named_parameters() if value.grad is not None}
        film = {f"vision.{name}": value.grad for name, value in (self.film or {}).items() if value.grad is not None}
        return {**own, **film}


def random_film(rng: Rng) -> dict[str, Tensor]:
    """Weights of FiLM with which each of them matters."""
    sizes = PolicyConfig.tiny()
    shapes = {"weight": (sizes.vision_width, sizes.width), "bias": (sizes.vision_width,)}
    return {f"{part}.{name}": rng.normal(*shape, std=0.2) for part in _FILM for name, shape in shapes.items()}


def padded_instructions(rng: Rng, size: int) -> dict[str, Tensor]:
    """A random batch in which instructions have two or more words, and some end with padding."""
    batch = random_batch(rng, size)
    return _of_lengths(batch, rng.integers(2, WORDS + 1, size))


def shortest_instructions(rng: Rng) -> dict[str, Tensor]:
    """A random batch in which an instruction has no word, one has one, and one has two."""
    return _of_lengths(random_batch(rng, 3), torch.arange(3))


def _of_lengths(batch: dict[str, Tensor], words: Tensor) -> dict[str, Tensor]:
    return {**batch, "attention_mask": (torch.arange(WORDS)[None] < words[:, None]).long()}


_FILM = ("scale", "shift")
