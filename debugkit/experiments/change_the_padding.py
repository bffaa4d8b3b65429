"""Change what stands in the padding, then how much there is, then take it away: nothing valid may move.

Only a batch that is padded is tried: what padding would do to a model that never sees any is nobody's fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from debugkit.batch_roles import ACTION_NAMES, is_index, labels, padding_mask, within
from debugkit.experiments import experiment
from debugkit.experiments.passes import Pass, distance, evaluate, floor
from debugkit.experiments.position_values import PositionValues
from debugkit.finding import NotExamined
from debugkit.observations.padding import Movement, PaddingReaction
from debugkit.step import one_line
from debugkit.structure import map_tensors, tensors_in
from debugkit.subject import Subject

IGNORED = -100
_LEFT_ALONE = (*ACTION_NAMES, "state", "pixel_values", "action_is_pad")


@experiment(PaddingReaction, cost=3, requires=("batch",))
def change_the_padding(subject: Subject) -> PaddingReaction:
    """One pass with other content, one with more padding, two of a single row, beside the shared ones."""
    padding = _Padding.of(subject)
    # Padded on the right, the batch is the subject's own and its two equal passes are shared by all experiments.
    before, threshold = floor(subject, None if padding.on_the_right else padding.batch(subject), output_needed=False)
    content = _other_content(subject, padding, before, threshold)
    longer, why_not = _more_padding(subject, padding, before)
    return PaddingReaction(
        mask=padding.path,
        padded=int((~padding.valid).sum()),
        positions=padding.valid.numel(),
        floor=threshold,
        content=content,
        longer=longer,
        added=padding.extra if longer else 0,
        alone=_row_alone(subject, padding, before),
        counted_labels=_counted_labels(subject, padding),
        labels_aligned=_aligned_labels(subject, padding) is not None,
        why_not=why_not,
    )


@dataclass(frozen=True, eq=False)
class _Padding:
    path: str
    valid: torch.Tensor
    """(B, L) bool."""
    on_the_right: bool
    aligned: frozenset[str]
    """Paths of the tensors that have the mask's rows and positions."""

    @classmethod
    def of(cls, subject: Subject) -> _Padding:
        found = padding_mask(subject)
        if found is None:
            raise NotExamined(
                "No padding mask was found in the batch (attention_mask, 1 for content): name it with "
                "declare=Declare(padding_mask=…)."
            )
        path, mask = found
        valid = mask.bool()
        if bool(valid.all()):
            raise NotExamined(f"Nothing in this batch is padded ({path} is 1 everywhere).")
        if not bool(valid.any(1).all()):
            raise NotExamined(f"{path} hides a whole row, so there is nothing that must stay.")
        names = [name for name, tensor in tensors_in(subject.batch) if _is_aligned(name, tensor, valid)]
        return cls(path, valid, bool((~valid[:, -1]).sum() >= (~valid[:, 0]).sum()), frozenset({path, *names}))

    def batch(self, subject: Subject) -> Any:
        """A copy of the batch in which, where padding stands before the text, nothing is asked of the last padding.

        A causal model predicts the first token of a text padded on the left from padding. That is common and harmless,
        and would make the loss depend on it.
        """
        batch, label = subject.fresh_batch(), labels(subject)
        if self.on_the_right or label is None or label[1].shape != self.valid.shape:
            return batch
        first = self.valid & (self.valid.cumsum(1) == 1)
        return map_tensors(
            batch, lambda path, tensor: tensor.masked_fill(first, IGNORED) if path == label[0] else tensor
        )

    @property
    def extra(self) -> int:
        """As many positions as the most padded row has already: its padding is doubled."""
        return int((~self.valid).sum(1).max())

    def fill(self, tensor: torch.Tensor) -> torch.Tensor:
        """What stands at padded positions: the commonest value, or the first row vector."""
        here = tensor[~self.valid]
        return here.mode().values if here.ndim == 1 else here[0]


def _is_aligned(path: str, tensor: torch.Tensor, valid: torch.Tensor) -> bool:
    if tensor.shape[:2] != valid.shape or any(within(path, name) for name in _LEFT_ALONE):
        return False
    return tensor.ndim == 2 or (tensor.ndim == 3 and tensor.is_floating_point())


def _other_content(subject: Subject, padding: _Padding, before: Pass, threshold: float) -> Movement | None:
    """Features at padded positions are given noise; so are the embeddings of tokens, whose ids stay as they are.

    Some models find the padding by its id (a classifier that reads the last token, positions that skip it), so other
    ids would not be other content but other padding.
    """
    changed: set[str] = set()

    def change(path: str, tensor: torch.Tensor) -> torch.Tensor:
        if path in padding.aligned and tensor.is_floating_point() and "mask" not in path.rpartition(".")[2]:
            changed.add(path)
            tensor[~padding.valid] += _noise(tensor[~padding.valid], tensor[padding.valid])
        return tensor

    batch = map_tensors(padding.batch(subject), change)
    with _NoisyEmbeddings(subject, padding) as embeddings:
        after = evaluate(subject, batch, output_needed=False)
    if not changed and not embeddings.changed:
        return None
    output, moved = _most_moved(before, after, padding, padding.valid)
    loss_moved = _loss_distance(before.loss, after.loss)
    module = _first_module_to_move(subject, padding, batch, threshold) if max(moved, loss_moved) > threshold else None
    return Movement(output, moved, loss_moved, module)


def _first_module_to_move(subject: Subject, padding: _Padding, batch: Any, threshold: float) -> str | None:
    """Two more passes, to name the place."""
    with PositionValues(subject, padding.valid) as first:
        evaluate(subject, padding.batch(subject), output_needed=False)
    with _NoisyEmbeddings(subject, padding), PositionValues(subject, padding.valid) as second:
        evaluate(subject, batch, output_needed=False)
    return first.first_difference(second, threshold)


def _noise(padded: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """As large as what stands where there is content, from a generator of its own."""
    scale = valid.detach().float().std(correction=0).nan_to_num(1.0).clamp_min(1e-2)
    drawn = torch.randn(padded.shape, generator=torch.Generator().manual_seed(0))
    return (scale * drawn.to(scale)).to(padded)


class _NoisyEmbeddings:
    """While attached, embeddings of the batch's own token ids are noisy at padded positions."""

    def __init__(self, subject: Subject, padding: _Padding) -> None:
        tensors = dict(tensors_in(subject.batch))
        self._ids = [tensors[path] for path in padding.aligned if path != padding.path and is_index(tensors[path])]
        self._valid = padding.valid
        self._modules = [module for module in subject.model.modules() if isinstance(module, nn.Embedding)]
        self.changed = False

    def __enter__(self) -> Self:
        self._handles = [module.register_forward_hook(self._disturb) for module in self._modules]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _disturb(self, _module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor | None:
        if not args or not any(_same(args[0], ids) for ids in self._ids):
            return None  # positions, or another sequence
        self.changed = True
        noisy = output.clone()
        noisy[~self._valid] += _noise(output[~self._valid], output[self._valid])
        return noisy


def _same(given: Any, ids: torch.Tensor) -> bool:
    return isinstance(given, torch.Tensor) and given.shape == ids.shape and bool((given.to(ids.device) == ids).all())


def _more_padding(subject: Subject, padding: _Padding, before: Pass) -> tuple[Movement | None, str]:
    """The batch with its padding doubled; None, and why, where the model takes no longer input."""

    def lengthen(path: str, tensor: torch.Tensor) -> torch.Tensor:
        if path not in padding.aligned:
            return tensor
        more = padding.fill(tensor).expand(tensor.shape[0], padding.extra, *tensor.shape[2:])
        return torch.cat([tensor, more] if padding.on_the_right else [more, tensor], dim=1)

    try:
        after = evaluate(subject, map_tensors(padding.batch(subject), lengthen), output_needed=False)
    except Exception as error:
        return None, f"More padding could not be tried: {one_line(error)}."
    if before.drawn != after.drawn:
        return None, "More padding could not be tried: the model draws as many random numbers as there are positions."
    blank = torch.zeros(len(padding.valid), padding.extra, dtype=torch.bool, device=padding.valid.device)
    longer = torch.cat([padding.valid, blank] if padding.on_the_right else [blank, padding.valid], dim=1)
    output, moved = _most_moved(before, after, padding, longer)
    return Movement(output, moved, _loss_distance(before.loss, after.loss)), ""


def _row_alone(subject: Subject, padding: _Padding, before: Pass) -> Movement | None:
    """The most padded row without its padding, against the batch (outputs) and against itself padded (loss)."""
    row = int((~padding.valid).sum(1).argmax())
    columns = padding.valid[row].nonzero().flatten()
    if len(columns) != int(columns[-1] - columns[0]) + 1:
        return None  # padding in the middle: without it, the text is another
    kept = slice(int(columns[0]), int(columns[-1]) + 1)
    size = len(padding.valid)

    def one_row(trim: bool) -> Pass:
        def cut(path: str, tensor: torch.Tensor) -> torch.Tensor:
            single = tensor[row : row + 1] if tensor.shape[:1] == (size,) else tensor
            return single[:, kept] if trim and path in padding.aligned else single

        return evaluate(subject, map_tensors(padding.batch(subject), cut), output_needed=False)

    try:
        padded, trimmed = one_row(trim=False), one_row(trim=True)
    except Exception:
        return None  # a model for whole batches of one length only
    if padded.drawn != trimmed.drawn:
        return None
    in_batch = {path: tensor[row : row + 1] for path, tensor in before.outputs.items() if tensor.shape[:1] == (size,)}
    # A model that draws noise for each sample gives a row alone other noise than in the batch.
    own = padded if before.drawn != padded.drawn else Pass(in_batch, before.loss)
    valid = torch.ones(1, len(columns), dtype=torch.bool, device=padding.valid.device)
    output, moved = _most_moved(own, trimmed, padding, valid, row=row)
    return Movement(output, moved, _loss_distance(padded.loss, trimmed.loss))


def _most_moved(
    before: Pass, after: Pass, padding: _Padding, valid_after: torch.Tensor, row: int | None = None
) -> tuple[str | None, float]:
    """The output that moved most: at positions with content where it has positions, as a whole where it has none."""
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
    """Whether a dimension counts at least as many places as the text has: it may hold padding, at places unknown."""
    return any(size >= valid.shape[1] for size in tensor.shape[1:-1])


def _loss_distance(before: torch.Tensor, after: torch.Tensor) -> float:
    """Relative, but not of a loss that is as good as zero."""
    one, other = float(before), float(after)
    if one == other or (one != one and other != other):
        return 0.0
    gap = abs(one - other) / max(abs(one), abs(other), 1e-3)
    return gap if gap == gap else float("inf")


def _aligned_labels(subject: Subject, padding: _Padding) -> torch.Tensor | None:
    found = labels(subject)
    return found[1] if found is not None and found[1].shape == padding.valid.shape else None


def _counted_labels(subject: Subject, padding: _Padding) -> int:
    found = _aligned_labels(subject, padding)
    return 0 if found is None else int((found[~padding.valid] >= 0).sum())
