"""Changes the content of the padding, then its amount, then removes it. Results at valid positions must not change.

Only a padded batch is tried. A model that never receives padding does not have to support it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import nn

from debugkit.finding import NotExamined
from debugkit.frames import one_line
from debugkit.interventions.batch_roles import ACTION_NAMES, is_index, labels, repeats_ids, token_ids, within
from debugkit.interventions.padding import constant_at, padding_mask, padding_that_the_mask_leaves_out
from debugkit.interventions.passes import Pass, distance, evaluate, floor
from debugkit.interventions.position_values import PositionValues
from debugkit.measurements.padding import Movement, PaddingReaction
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.setup import TrainingSetup
from debugkit.structure import map_tensors, tensors_in

IGNORED = -100
_OF_FIXED_WIDTH = "More padding was not tried: the model may have a window of fixed width."
_ALWAYS_ALIGNED = ("token_type_ids", "position_ids")
_LEFT_ALONE = (*ACTION_NAMES, "state", "pixel_values", "action_is_pad")


def change_the_padding(setup: TrainingSetup) -> PaddingReaction:
    """One pass with other content, one with more padding, two of a single row, in addition to the shared ones."""
    padding = _Padding.of(setup)
    # A batch padded on the right is not modified, so its two equal passes can be shared with other measurements.
    before, threshold = floor(setup, None if padding.on_the_right else padding.batch(setup), output_needed=False)
    content = _other_content(setup, padding, before, threshold)
    longer, why_not = _more_padding(setup, padding, before) if padding.named else (None, _OF_FIXED_WIDTH)
    return PaddingReaction(
        mask=padding.path,
        padded=int((~padding.valid).sum()),
        positions=padding.valid.numel(),
        floor=threshold,
        content=content,
        longer=longer,
        added=padding.extra if longer else 0,
        alone=_row_alone(setup, padding, before) if padding.named else None,
        counted_labels=_counted_labels(setup, padding),
        labels_aligned=_aligned_labels(setup, padding) is not None,
        why_not=why_not,
        mask_says=padding.says,
    )


@dataclass(frozen=True, eq=False)
class _Padding:
    path: str
    valid: torch.Tensor
    """(B, L) bool."""
    on_the_right: bool
    aligned: frozenset[str]
    """Paths of the tensors that have the mask's rows and positions."""
    named: bool
    """Whether the mask is known by its name: texts of such a batch may have any length."""
    says: Literal["content", "padding", "nothing"]

    @classmethod
    def of(cls, setup: TrainingSetup) -> _Padding:
        found = padding_that_the_mask_leaves_out(setup) or padding_mask(setup)
        if found is None:
            raise NotExamined(
                "No padding mask was found in the batch (attention_mask, 1 for content): pass its name with "
                "declare=Declare(padding_mask=…)."
            )
        path, valid = found.path, found.valid
        if bool(valid.all()):
            raise NotExamined(f"Nothing in this batch is padded ({path} is 1 everywhere).")
        if not bool(valid.any(1).all()):
            raise NotExamined(f"{path} masks a whole row, so there is no content to compare.")
        names = [name for name, tensor in tensors_in(setup.batch) if _is_aligned(setup, name, tensor, valid)]
        on_the_right = bool((~valid[:, -1]).sum() >= (~valid[:, 0]).sum())
        return cls(path, valid, on_the_right, frozenset({path, *names}), found.named, found.says)

    def batch(self, setup: TrainingSetup) -> Any:
        """A copy of the batch. If the padding is on the left, the first token's label is ignored.

        A causal model predicts the first token of such a text from padding. That is common and harmless, but it makes
        the loss depend on the padding.
        """
        batch, label = setup.fresh_batch(), labels(setup)
        if self.on_the_right or label is None or label[0] not in self.aligned:
            return batch
        first = self.valid & (self.valid.cumsum(1) == 1)
        return map_tensors(
            batch, lambda path, tensor: tensor.masked_fill(first, IGNORED) if path == label[0] else tensor
        )

    @property
    def extra(self) -> int:
        """The number of padded positions in the most padded row, so that its padding is doubled."""
        return int((~self.valid).sum(1).max())

    def fill(self, tensor: torch.Tensor) -> torch.Tensor:
        """The padding value: the most common value at padded positions, or the first vector there."""
        here = tensor[~self.valid]
        return here.mode().values if here.ndim == 1 else here[0]


def _is_aligned(setup: TrainingSetup, path: str, tensor: torch.Tensor, valid: torch.Tensor) -> bool:
    """Whether a tensor has the mask's positions: it is constant at padded ones, or belongs to the text by its name."""
    if tensor.shape[:2] != valid.shape or any(within(path, name) for name in _LEFT_ALONE):
        return False
    if tensor.ndim != 2:
        return tensor.ndim == 3 and tensor.is_floating_point() and constant_at(tensor, ~valid)
    ids = token_ids(setup)
    if path.rpartition(".")[2] in _ALWAYS_ALIGNED or (ids is not None and path == ids[0]):
        return True
    if constant_at(tensor, ~valid):
        return True
    return ids is not None and is_index(tensor) and repeats_ids(tensor, ids[1], valid & (tensor >= 0))


def _other_content(setup: TrainingSetup, padding: _Padding, before: Pass, threshold: float) -> Movement | None:
    """Add noise to features and to token embeddings at padded positions. The token ids do not change.

    Some models find the padding by its id (a classifier that reads the last token, positions that skip padding), so
    other ids would change where the padding is and not what it contains.
    """
    changed: set[str] = set()

    def change(path: str, tensor: torch.Tensor) -> torch.Tensor:
        is_mask = path == padding.path or "mask" in path.rpartition(".")[2]
        if path in padding.aligned and tensor.is_floating_point() and not is_mask:
            changed.add(path)
            tensor[~padding.valid] += _noise(tensor[~padding.valid], tensor[padding.valid])
        return tensor

    batch = map_tensors(padding.batch(setup), change)
    with _NoisyEmbeddings(setup, padding) as embeddings:
        after = evaluate(setup, batch, output_needed=False)
    if not changed and not embeddings.changed:
        return None
    output, moved = _most_moved(before, after, padding, padding.valid)
    loss_moved = _loss_distance(before.loss, after.loss)
    module = _first_module_to_move(setup, padding, batch, threshold) if max(moved, loss_moved) > threshold else None
    return Movement(output, moved, loss_moved, module)


def _first_module_to_move(setup: TrainingSetup, padding: _Padding, batch: Any, threshold: float) -> str | None:
    """Run two more passes to find the module."""
    with PositionValues(setup, padding.valid) as first:
        evaluate(setup, padding.batch(setup), output_needed=False)
    with _NoisyEmbeddings(setup, padding), PositionValues(setup, padding.valid) as second:
        evaluate(setup, batch, output_needed=False)
    return first.first_difference(second, threshold)


def _noise(padded: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Noise with the scale of the values at content positions, from a separate generator."""
    scale = valid.detach().float().std(correction=0).nan_to_num(1.0).clamp_min(1e-2)
    drawn = torch.randn(padded.shape, generator=torch.Generator().manual_seed(0))
    return (scale * drawn.to(scale)).to(padded)


class _NoisyEmbeddings:
    """Adds noise, while attached, to the embeddings of the batch's token ids at padded positions."""

    def __init__(self, setup: TrainingSetup, padding: _Padding) -> None:
        tensors = dict(tensors_in(setup.batch))
        self._ids = [tensors[path] for path in padding.aligned if path != padding.path and is_index(tensors[path])]
        self._valid = padding.valid
        embeddings = [(path, module) for path, module in setup.named_modules if isinstance(module, nn.Embedding)]
        self._calls = ModuleCalls(embeddings, after=self._disturb)
        self.changed = False

    def __enter__(self) -> Self:
        self._calls.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.remove()

    def _disturb(
        self, _path: str, _module: nn.Module, args: Any, _kwargs: Any, output: torch.Tensor
    ) -> torch.Tensor | None:
        if not args or not any(_same(args[0], ids) for ids in self._ids):
            return None  # the embedding of positions, or of another sequence
        self.changed = True
        noisy = output.clone()
        noisy[~self._valid] += _noise(output[~self._valid], output[self._valid])
        return noisy


def _same(given: Any, ids: torch.Tensor) -> bool:
    return isinstance(given, torch.Tensor) and given.shape == ids.shape and bool((given.to(ids.device) == ids).all())


def _more_padding(setup: TrainingSetup, padding: _Padding, before: Pass) -> tuple[Movement | None, str]:
    """The batch with its padding doubled; None and the reason if the model does not accept a longer input."""

    def lengthen(path: str, tensor: torch.Tensor) -> torch.Tensor:
        if path not in padding.aligned:
            return tensor
        more = padding.fill(tensor).expand(tensor.shape[0], padding.extra, *tensor.shape[2:])
        return torch.cat([tensor, more] if padding.on_the_right else [more, tensor], dim=1)

    try:
        after = evaluate(setup, map_tensors(padding.batch(setup), lengthen), output_needed=False)
    except Exception as error:
        return None, f"More padding could not be tried: {one_line(error)}."
    if before.drawn != after.drawn:
        return None, "More padding could not be tried: the model draws random numbers for every position."
    blank = torch.zeros(len(padding.valid), padding.extra, dtype=torch.bool, device=padding.valid.device)
    longer = torch.cat([padding.valid, blank] if padding.on_the_right else [blank, padding.valid], dim=1)
    output, moved = _most_moved(before, after, padding, longer)
    return Movement(output, moved, _loss_distance(before.loss, after.loss)), ""


def _row_alone(setup: TrainingSetup, padding: _Padding, before: Pass) -> Movement | None:
    """The most padded row without padding, compared with the batch (outputs) and with itself padded (loss)."""
    row = int((~padding.valid).sum(1).argmax())
    columns = padding.valid[row].nonzero().flatten()
    if len(columns) != int(columns[-1] - columns[0]) + 1:
        return None  # padding in the middle: removing it changes the text
    kept = slice(int(columns[0]), int(columns[-1]) + 1)
    size = len(padding.valid)

    def one_row(trim: bool) -> Pass:
        def cut(path: str, tensor: torch.Tensor) -> torch.Tensor:
            single = tensor[row : row + 1] if tensor.shape[:1] == (size,) else tensor
            return single[:, kept] if trim and path in padding.aligned else single

        return evaluate(setup, map_tensors(padding.batch(setup), cut), output_needed=False)

    try:
        padded, trimmed = one_row(trim=False), one_row(trim=True)
    except Exception:
        return None  # the model accepts only whole batches or one length
    if padded.drawn != trimmed.drawn:
        return None
    in_batch = {path: tensor[row : row + 1] for path, tensor in before.outputs.items() if tensor.shape[:1] == (size,)}
    # If the model draws noise for each sample, a row alone gets different noise than in the batch.
    own = padded if before.drawn != padded.drawn else Pass(in_batch, before.loss)
    valid = torch.ones(1, len(columns), dtype=torch.bool, device=padding.valid.device)
    output, moved = _most_moved(own, trimmed, padding, valid, row=row)
    return Movement(output, moved, _loss_distance(padded.loss, trimmed.loss))


def _most_moved(
    before: Pass, after: Pass, padding: _Padding, valid_after: torch.Tensor, row: int | None = None
) -> tuple[str | None, float]:
    """The output that changed most: at content positions if it has positions, else as a whole."""
    valid = padding.valid if row is None else padding.valid[row : row + 1]
    moves: dict[str, float] = {}
    for path, tensor in before.outputs.items():
        other = after.outputs.get(path)
        if other is None or tensor.shape[:1] != valid.shape[:1] or not tensor.is_floating_point():
            continue
        if tensor.shape[1:2] == valid.shape[1:] and other.shape[1:2] == valid_after.shape[1:]:
            moves[path] = distance(tensor[valid], other[valid_after])
        elif tensor.shape == other.shape and not _has_positions(tensor, valid):
            moves[path] = distance(tensor, other)
    return max(moves.items(), key=lambda move: move[1]) if moves else (None, 0.0)


def _has_positions(tensor: torch.Tensor, valid: torch.Tensor) -> bool:
    """Whether a dimension is at least as long as the text. It may then contain padding at unknown positions."""
    return any(size >= valid.shape[1] for size in tensor.shape[1:-1])


def _loss_distance(before: torch.Tensor, after: torch.Tensor) -> float:
    """The relative difference, except for losses that are practically zero."""
    one, other = float(before), float(after)
    if one == other or (one != one and other != other):
        return 0.0
    gap = abs(one - other) / max(abs(one), abs(other), 1e-3)
    return gap if gap == gap else float("inf")


def _aligned_labels(setup: TrainingSetup, padding: _Padding) -> torch.Tensor | None:
    found = labels(setup)
    return found[1] if found is not None and found[0] in padding.aligned and found[1].ndim == 2 else None


def _counted_labels(setup: TrainingSetup, padding: _Padding) -> int:
    found = _aligned_labels(setup, padding)
    return 0 if found is None else int((found[~padding.valid] >= 0).sum())
