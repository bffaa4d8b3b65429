"""Takes the gradient of single rows of a sequence with respect to the pixels: where it is not zero, the row was made.

Different rows are examined in different samples of the batch, so one backward pass shows as many rows as there are
samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import user_line
from debugkit.interventions.batch_roles import is_index
from debugkit.preserve_state import same_start
from debugkit.randomness import same_randomness
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.rules.dk322_mixed_patches import PixelsOfRows, TokenRows
from debugkit.setup import TrainingSetup
from debugkit.structure import batch_size, map_tensors, tensors_in

_CHANNELS = (1, 3, 4)
_FEWEST_PIXELS = 4
_FEWEST_ROWS = 4
_EXAMINED = 8
_BESIDE = 8
"""A sequence may hold this many other rows, such as a class token and registers."""
_SEQUENCES = 3
"""The sequences tried for each image: behind the first attention, every row depends on all pixels."""
_CHANNELS_FIRST = ("Conv1d", "BatchNorm1d", "InstanceNorm1d", "MaxPool1d", "AvgPool1d")
_SEED = 0


def pixels_of_the_rows(setup: TrainingSetup) -> PixelsOfRows:
    """One pass with a graph, and a few gradients."""
    paths = _images(setup)
    sequences, lines, leaves = _run(setup, paths)
    found = []
    for path, leaf in leaves.items():
        tried = 0
        for sequence in sequences:
            rows = _pixels(sequence.tokens, leaf, [0])
            if rows is None:
                continue
            if (seen := _divided(path, leaf, sequence, lines)) is not None:
                found.append(seen)
                break
            tried += 1
            if tried == _SEQUENCES:
                break
    if not found:
        raise NotExamined("No sequence was seen whose rows divide the values of an image, with a gradient to it.")
    return PixelsOfRows(tuple(found))


def _images(setup: TrainingSetup) -> list[str]:
    size = batch_size(setup.batch)
    tensors = [(path, tensor) for path, tensor in tensors_in(setup.batch) if tensor.shape[:1] == (size,)]
    images = [(path, tensor) for path, tensor in tensors if tensor.ndim == 4 and tensor.shape[1] in _CHANNELS]
    images = [(path, tensor) for path, tensor in images if min(tensor.shape[2:]) >= _FEWEST_PIXELS]
    floats = [path for path, tensor in images if tensor.is_floating_point() and "mask" not in path.lower()]
    if not floats:
        whole = any(is_index(tensor) for _, tensor in images)
        raise NotExamined(
            "The images are integers, which have no gradient." if whole else "The batch has no images (B, C, H, W)."
        )
    return floats


@dataclass(frozen=True, eq=False)
class _Sequence:
    module: str
    tokens: Tensor
    """(B, N, D), with its graph."""


def _run(setup: TrainingSetup, paths: Sequence[str]) -> tuple[list[_Sequence], _Lines, dict[str, Tensor]]:
    """Run one pass; return the sequences in order, the lines that made them, and the images by path."""
    leaves: dict[str, Tensor] = {}

    def change(path: str, tensor: Tensor) -> Tensor:
        if path not in paths:
            return tensor
        leaves[path] = tensor.detach().requires_grad_()
        return leaves[path].clone()  # the model may change it in place

    sequences: dict[int, _Sequence] = {}
    size = batch_size(setup.batch)

    def keep(path: str, module: nn.Module, values: Any) -> None:
        if type(module).__name__ in _CHANNELS_FIRST:
            return
        for _, tensor in tensors_in(values):
            is_sequence = tensor.ndim == 3 and tensor.shape[0] == size and tensor.shape[1] >= _FEWEST_ROWS
            if is_sequence and tensor.requires_grad:
                sequences.setdefault(id(tensor), _Sequence(path, tensor))

    calls = ModuleCalls(
        setup.named_modules,
        before=lambda path, module, args, kwargs: keep(path, module, (args, kwargs)),
        after=lambda path, module, _args, _kwargs, output: keep(path, module, output),
    )
    setup.model.eval()
    with same_start(setup), calls, _Lines() as lines, torch.enable_grad(), same_randomness(_SEED):
        setup.loss(map_tensors(setup.fresh_batch(), change))
    return list(sequences.values()), lines, leaves


class _Lines(TorchFunctionMode):
    """The first line that gives a tensor each new shape of a sequence by counting its values."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[tuple[int, int], SourceLine | None] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in ("reshape", "view", "flatten") and isinstance(output, Tensor):
            before = args[0] if args and isinstance(args[0], Tensor) else None
            if output.ndim == 3 and output.requires_grad and before is not None and before.shape != output.shape:
                self.of.setdefault((output.shape[1], output.shape[2]), user_line())
        return output


def _divided(path: str, image: Tensor, sequence: _Sequence, lines: _Lines) -> TokenRows | None:
    """What the rows hold; None if they do not divide the image into as many values as square patches have."""
    count = sequence.tokens.shape[1]
    chosen = sorted({round(place * (count - 1) / (_EXAMINED - 1)) for place in range(_EXAMINED)})
    pixels = _pixels(sequence.tokens, image, chosen)
    if pixels is None:
        return None
    held = [row for row in pixels if bool(row.any())]  # a class token holds nothing
    if len(held) < min(_FEWEST_ROWS, len(chosen) - 1):
        return None
    values = int(held[0].sum())
    channels, height, width = image.shape[1:]
    side = math.isqrt(values // channels)
    if side < 2 or channels * side * side != values or height % side or width % side:
        return None
    rows = height * width // side**2
    if not rows <= count <= rows + _BESIDE or any(int(row.sum()) != values for row in held):
        return None
    if int(torch.stack(held).sum(0).max()) > 1:
        return None  # they overlap
    wrong = [row for row in held if not _is_patch(row)]
    if wrong and _is_channels_first(sequence.tokens, image):
        return None
    squares = [int(row.any(0).view(height // side, side, width // side, side).any(3).any(1).sum()) for row in held]
    made = {shape: line for shape, line in lines.of.items() if shape[0] == rows}
    at = made.get((rows, values), next(iter(made.values()), None)) if wrong else None
    return TokenRows(path, sequence.module, rows, values, side, len(held), len(wrong), max(squares), rows, at)


def _pixels(tokens: Tensor, image: Tensor, chosen: Sequence[int]) -> list[Tensor] | None:
    """For each chosen row of the sequence, which values (C, H, W) of its image it depends on; None if it is on none."""
    generator = torch.Generator().manual_seed(_SEED)
    direction = torch.randn(tokens.shape[2], generator=generator).to(tokens)
    found = []
    for group in _groups(chosen, len(tokens)):
        samples = range(len(group))
        value = (tokens[list(samples), list(group)] * direction).sum()
        (gradient,) = torch.autograd.grad(value, image, retain_graph=True, allow_unused=True)
        if gradient is None:
            return None
        found += [gradient[sample] != 0 for sample in samples]
    return found


def _groups(chosen: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    yield from (chosen[start : start + size] for start in range(0, len(chosen), size))


def _is_patch(held: Tensor) -> bool:
    """Whether values (C, H, W) are a rectangle in all channels, or in some of them a square or a line."""
    channels, rows, columns = held.any(2).any(1), held.any(2).any(0), held.any(1).any(0)
    if not bool((held == channels[:, None, None] & rows[:, None] & columns).all()):
        return False
    height, width = int(rows.sum()), int(columns.sum())
    is_form = bool(channels.all()) or height == width or 1 in (height, width)
    return is_form and _is_one_piece(rows) and _is_one_piece(columns)


def _is_one_piece(chosen: Tensor) -> bool:
    """Whether the chosen places are neighbours; the first is one of the last, for images that are rolled."""
    return int((chosen != chosen.roll(1)).sum()) <= 2


def _is_channels_first(tokens: Tensor, image: Tensor) -> bool:
    """Whether (B, D, N) has patches in its last axis: then what was taken for rows are channels."""
    pixels = _pixels(tokens.transpose(1, 2), image, [0, tokens.shape[2] // 2])
    return pixels is not None and all(0 < int(row.sum()) < row.numel() and _is_patch(row) for row in pixels)
