"""The instruction and its tokens: one token per word, padded on the right.

A word-level vocabulary keeps the token ids readable in a debugger. Everything else is as in a real tokenizer: a
beginning-of-sequence token, a padding token that the attention mask must hide, and truncation at a fixed length.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

COLOURS = ("red", "green", "blue", "yellow")
INSTRUCTION_TEMPLATES = (
    "go to {colour}",
    "move to the {colour} block",
    "please reach the {colour} block now",
    "reach {colour}",
)

PAD, BOS = "<pad>", "<bos>"
VOCABULARY = (PAD, BOS, "go", "move", "reach", "please", "to", "the", "block", "now", *COLOURS)
TOKEN_ID = {word: index for index, word in enumerate(VOCABULARY)}
PAD_ID, BOS_ID = TOKEN_ID[PAD], TOKEN_ID[BOS]
COLOUR_IDS = tuple(TOKEN_ID[colour] for colour in COLOURS)


def tokenize(instructions: Sequence[str], length: int = 8) -> tuple[Tensor, Tensor]:
    """Turn sentences into `input_ids` (B, L) and `attention_mask` (B, L), int64, 1 where there is a token.

    Sentences start with `<bos>`, are padded on the right, and are truncated at `length`. Raises ValueError for a word
    outside the vocabulary.
    """
    input_ids = torch.full((len(instructions), length), PAD_ID)
    attention_mask = torch.zeros_like(input_ids)
    for row, instruction in enumerate(instructions):
        ids = [BOS_ID, *(_word_id(word, instruction) for word in instruction.split())][:length]
        input_ids[row, : len(ids)] = torch.tensor(ids)
        attention_mask[row, : len(ids)] = 1
    return input_ids, attention_mask


def detokenize(input_ids: Tensor) -> list[str]:
    """Turn `input_ids` (B, L) back into sentences, without `<bos>` and padding."""
    return [" ".join(VOCABULARY[i] for i in row if i not in (PAD_ID, BOS_ID)) for row in input_ids.tolist()]


def _word_id(word: str, instruction: str) -> int:
    if word not in TOKEN_ID:
        known = ", ".join(VOCABULARY[2:])
        raise ValueError(f"The word {word!r} in {instruction!r} is not in the vocabulary. Known words: {known}.")
    return TOKEN_ID[word]
