"""A policy that writes its next action as text, one character at a time: `o -37 100`.

    prefix: patches, instruction, state ─┐
    <bos>o -37 100 ──────────────────────┴─ Llama ── text head ── o -37 100<end>

The text is the gripper, `o` for open or `c` for closed (above 0), and the movement dx and dy in whole millimetres: 5 to
11 characters. On the robot the policy reads the prefix once, keeps its keys and values in a cache, and then passes
each character through the language model as it is written.

Notable choices
- Characters have their own embedding table and head; `<unk>` stands for a character that is not in the vocabulary.
- As with the tokenizers of GPT-2 and Llama, no token is reserved for padding.
- Positions count only what the mask keeps, so a short instruction does not move the text.
- A text that a robot cannot read must not move it: `read` then returns no movement and an open gripper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache
from transformers.utils import ModelOutput

from labs.vla.dataset import Batch, Frames, observation_batch
from labs.vla.heads import ActionHead
from labs.vla.language_model import position_ids_from_mask
from labs.vla.policy import OBSERVATION_KEYS, Policy, PolicyConfig

VOCABULARY = (*"0123456789- oc", "<unk>", "<bos>", "<end>")
TOKEN_ID = {token: index for index, token in enumerate(VOCABULARY)}
UNK, BOS, END = (TOKEN_ID[token] for token in ("<unk>", "<bos>", "<end>"))
PAD = END
LONGEST = 16
"""Tokens after which a text is cut."""
IGNORED = -100
"""The label that the loss ignores."""


@dataclass
class TextOutput(ModelOutput):
    """`loss`, a scalar, and `logits` (B, T, tokens) of the token after each of `text_ids`."""

    loss: Tensor | None = None
    logits: Tensor | None = None


def write(action: Tensor) -> str:
    """The text of an action (3,): gripper, dx, dy."""
    dx, dy = (round(float(metres) * 1000) for metres in action[:2])
    return f"{'c' if action[2] > 0 else 'o'} {dx} {dy}"


def read(text: str) -> Tensor:
    """The action (3,) of a text, from its first gripper and its first two numbers; whatever follows is not read."""
    found = re.match(r"([oc]) (-?\d+) (-?\d+)", text)
    if found is None:
        return torch.tensor([0.0, 0.0, -1.0])
    return torch.tensor([int(found[2]) / 1000, int(found[3]) / 1000, 1.0 if found[1] == "c" else -1.0])


def tokenise(text: str) -> list[int]:
    """The tokens of a text, between `<bos>` and `<end>`."""
    return [BOS, *(TOKEN_ID.get(character, UNK) for character in text), END]


def collate_texts(texts: Sequence[str]) -> Batch:
    """Texts of any lengths as a batch of tokens and their mask, (B, T) each."""
    rows = [torch.tensor(tokenise(text)) for text in texts]
    text_ids = pad_sequence(rows, batch_first=True, padding_value=PAD)
    return {"text_ids": text_ids, "text_mask": (text_ids != PAD).long()}


def text_batch(frames: Frames) -> Batch:
    """Everything that the policy trains on: the observations, and the first action of each chunk as text."""
    observation = observation_batch(frames.image, frames.state, frames.instruction)
    return {**observation, **collate_texts([write(chunk[0]) for chunk in torch.from_numpy(frames.action)])}


class WritingPolicy(Policy):
    """The base policy that writes text; `policy(**batch).loss` trains it, `answer(batch)` drives the robot."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        super().__init__(config)
        self.text_embedding = nn.Embedding(len(VOCABULARY), self.config.width)
        nn.init.normal_(self.text_embedding.weight, std=0.3)
        self.text_head = nn.Linear(self.config.width, len(VOCABULARY))

    def build_head(self) -> ActionHead:
        """No head for actions: they are text."""
        return ActionHead(self.config.horizon, self.config.action_dim)

    def forward(
        self,
        pixel_values: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        state: Tensor,
        text_ids: Tensor,
        text_mask: Tensor,
    ) -> TextOutput:
        """The mean loss over the tokens of the texts, and the logits after each of `text_ids` (B, T)."""
        prefix, mask = self.embed_prefix(pixel_values, input_ids, attention_mask, state)
        sequence = torch.cat([prefix, self.text_embedding(text_ids)], dim=1)
        hidden = self.run_language_model(sequence, torch.cat([mask, text_mask], dim=1))
        logits = self.text_head(hidden[:, prefix.shape[1] :])  # (B, T, tokens)
        labels = text_ids.masked_fill(text_mask == 0, IGNORED)
        loss = F.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:], ignore_index=IGNORED)
        return TextOutput(loss=loss, logits=logits)

    @torch.no_grad()
    def generate(self, batch: Batch) -> Tensor:
        """The likeliest tokens for each observation, (B, T), until every row has an `<end>`, or 16 tokens.

        Rows that end before the others are filled with `<end>`. No graph is recorded.
        """
        prefix, mask = self.embed_prefix(**{name: batch[name] for name in OBSERVATION_KEYS})
        cache, token = DynamicCache(), torch.full_like(mask[:, :1], BOS)
        written, ended = token[:, :0], token == END
        new = torch.cat([prefix, self.text_embedding(token)], dim=1)
        while written.shape[1] < LONGEST and not ended.all():
            mask = F.pad(mask, (0, 1), value=1)
            hidden = self.language_model(
                inputs_embeds=new,
                attention_mask=mask,
                position_ids=position_ids_from_mask(mask)[:, -new.shape[1] :],
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state
            token = self.text_head(hidden[:, -1:]).argmax(dim=-1).masked_fill(ended, END)
            written, ended = torch.cat([written, token], dim=1), ended | (token == END)
            new = self.text_embedding(token)
        return written

    def say(self, batch: Batch) -> list[str]:
        """What the policy writes for each observation, without `<end>`."""
        rows = [row[: row.index(END)] if END in row else row for row in self.generate(batch).tolist()]
        return ["".join(VOCABULARY[token] for token in row) for row in rows]

    def answer(self, batch: Batch) -> Tensor:
        """The action for each observation, (B, 3)."""
        return torch.stack([read(text) for text in self.say(batch)])


def build_policy(seed: int) -> WritingPolicy:
    """The pretrained base, with the text's embedding table and head drawn from `seed`."""
    return WritingPolicy.from_base(seed=seed)
