"""Templates of `policy.py`: the forms of the tokenizer, each padding on the right or on the left.

Every form gives ids and mask, (B, L), cuts a sentence at its end, and defines `VOCABULARY` and `PAD`.
"""

from __future__ import annotations

SIDES = ("right", "left")


def _on_both_sides(template: str, **places: tuple[str, str]) -> dict[str, str]:
    """A template with `@name@` filled in for each side; the places are given for the right and for the left."""
    texts = {}
    for number, side in enumerate(SIDES):
        text = template.replace("@side@", side)
        for name, both in places.items():
            text = text.replace(f"@{name}@", both[number])
        texts[side] = text
    return texts


TOKENIZERS: dict[str, dict[str, str]] = {
    "words": _on_both_sides(
        '''
VOCABULARY = ("<pad>", "<bos>", "take", "move", "the", "red", "blue", "left", "right", "slowly", "now")
IDS = {word: index for index, word in enumerate(VOCABULARY)}
PAD, BOS = IDS["<pad>"], IDS["<bos>"]


def $tokenize(sentences: Sequence[str], length: int = 6) -> tuple[Tensor, Tensor]:
    """Ids and mask, both (B, L). A sentence is cut at the length and padded on the @side@."""
    input_ids = torch.full((len(sentences), length), PAD)
    attention_mask = torch.zeros(len(sentences), length, dtype=torch.long)
    for row, sentence in enumerate(sentences):
        ids = [BOS, *(IDS[word] for word in sentence.split())][:length]
        input_ids[row, @columns@] = torch.tensor(ids)
        attention_mask[row, @columns@] = 1
    return input_ids, attention_mask
''',
        columns=(": len(ids)", "-len(ids) :"),
    ),
    "ended": _on_both_sides(
        '''
WORDS = ["take", "move", "the", "red", "blue", "left", "right", "slowly", "now"]
PAD, END = 0, 1
VOCABULARY = ["<pad>", "<end>", *WORDS]


def $tokenize(sentences: Sequence[str], length: int = 6) -> tuple[Tensor, Tensor]:
    """Ids and mask, both (B, L): the first words of a sentence and an end token, which always fits.

    Padding is on the @side@.
    """
    rows = [[VOCABULARY.index(word) for word in sentence.split()[: length - 1]] + [END] for sentence in sentences]
    counts = torch.tensor([[len(row)] for row in rows])  # (B, 1)
    input_ids = torch.tensor([@padded@ for row in rows])
    attention_mask = (@columns@ < counts).long()
    return input_ids, attention_mask
''',
        padded=("row + [PAD] * (length - len(row))", "[PAD] * (length - len(row)) + row"),
        columns=("torch.arange(length)", "torch.arange(length).flip(0)"),
    ),
    "pieces": _on_both_sides(
        '''
PAD, START, END = 0, 1, 2
PIECES = ["_t", "_ta", "_the", "_mo", "_r", "_re", "_b", "_bl", "_le", "_slow", "_now"]
PIECES += ["ke", "ve", "d", "ed", "ue", "lue", "ft", "ight", "ly"]
VOCABULARY = ["<pad>", "<s>", "</s>", *PIECES]


def $pieces_of(sentence: str) -> list[int]:
    """Ids of the pieces of a sentence, each the longest that fits. `_` stands before every word."""
    ids = []
    rest = "".join(f"_{word}" for word in sentence.split())
    while rest:
        piece = max(filter(rest.startswith, PIECES), key=len)
        ids.append(VOCABULARY.index(piece))
        rest = rest.removeprefix(piece)
    return ids


def $tokenize(sentences: Sequence[str], length: int = 10) -> tuple[Tensor, Tensor]:
    """Ids and mask, both (B, L): a start token, the first pieces of a sentence, an end token, which always fits.

    Padding is on the @side@.
    """
    input_ids, attention_mask = [], []
    for sentence in sentences:
        ids = [START, *$pieces_of(sentence)[: length - 2], END]
        padding = [PAD] * (length - len(ids))
        input_ids.append(@padded@)
        attention_mask.append([int(@real@) for column in range(length)])
    return torch.tensor(input_ids), torch.tensor(attention_mask)
''',
        padded=("ids + padding", "padding + ids"),
        real=("column < len(ids)", "column >= len(padding)"),
    ),
    "letters": _on_both_sides(
        '''
VOCABULARY = "_^ abcdefghijklmnopqrstuvwxyz"  # padding, start, space, letters
PAD = VOCABULARY.index("_")


def $tokenize(sentences: Sequence[str], length: int = 24) -> tuple[Tensor, Tensor]:
    """Ids and mask, both (B, L): a start token, then one for each letter and space.

    A sentence is cut at the length and padded on the @side@.
    """
    texts = [f"^{sentence}"[:length] for sentence in sentences]
    input_ids = torch.tensor([[VOCABULARY.index(one) for one in text.@justified@(length, "_")] for text in texts])
    counts = torch.tensor([len(text) for text in texts])
    attention_mask = torch.arange(length) @real@
    return input_ids, attention_mask.long()
''',
        justified=("ljust", "rjust"),
        real=("< counts[:, None]", ">= length - counts[:, None]"),
    ),
}
