"""Change only the tokens behind a position: in a causal model nothing before it may move.

Tried where something is learnt: a bidirectional prefix has no targets, so it is not looked at.
"""

from __future__ import annotations

from typing import Any

import torch

from debugkit.batch_roles import labels, padding_mask, special_ids, token_ids
from debugkit.experiments import experiment
from debugkit.experiments.change_the_first_label import align, change_the_first_label
from debugkit.experiments.passes import Pass, distance, evaluate, floor
from debugkit.experiments.position_values import PositionValues
from debugkit.finding import NotExamined
from debugkit.observations.label_alignment import FutureTokens
from debugkit.structure import map_tensors
from debugkit.subject import Subject


@experiment(FutureTokens, cost=3, requires=("batch",))
def change_later_tokens(subject: Subject) -> FutureTokens:
    """One pass with other tokens in the second half of what is learnt; two to see that it should be causal."""
    learnt = _learnt_positions(subject)  # (B, L): outputs with a target
    ids = token_ids(subject)
    assert ids is not None
    path, tokens = ids
    cut = _cuts(learnt)  # (B, 1)
    place = torch.arange(tokens.shape[1], device=tokens.device)[None]
    other = _others(tokens, (place > cut) & _content(subject, tokens), special_ids(subject))
    kept = learnt & (place <= cut) & (other != tokens).any(1, keepdim=True)
    if not bool(kept.any()):
        raise NotExamined("No token behind one that is learnt could be changed.")
    before, threshold = floor(subject)
    batch = map_tensors(subject.fresh_batch(), lambda name, tensor: other.clone() if name == path else tensor)
    output, moved = _most_moved(before, evaluate(subject, batch), kept)
    module = _first_module_to_move(subject, batch, kept, threshold) if moved > threshold else None
    return FutureTokens(output, moved, threshold, int(kept.sum()), module or "")


def _first_module_to_move(subject: Subject, batch: Any, kept: torch.Tensor, threshold: float) -> str | None:
    """Two more passes, to name the place."""
    with PositionValues(subject, kept) as first:
        evaluate(subject)
    with PositionValues(subject, kept) as second:
        evaluate(subject, batch)
    return first.first_difference(second, threshold)


def _learnt_positions(subject: Subject) -> torch.Tensor:
    """Which outputs have a target, (B, L). Raises NotExamined where nothing says that the model should be causal."""
    if subject.declare.causal is False:
        raise NotExamined("The model is declared not to be causal.")
    ids, found = token_ids(subject), labels(subject)
    if ids is None:
        raise NotExamined("The batch has no token ids (B, L).")
    if found is None or found[1].shape != ids[1].shape:
        if subject.declare.causal:
            return _content(subject, ids[1])
        raise NotExamined("The batch has no labels for each of its token ids: say declare=Declare(causal=True).")
    counted = found[1] >= 0
    if subject.declare.causal:
        return counted
    align(subject)  # free, and stands aside first
    alignment = change_the_first_label(subject)
    if alignment.labels_are_ids and not alignment.loss_shifts:
        raise NotExamined(
            "Output and label of the same token are compared: this model reconstructs, it does not predict."
        )
    if not alignment.loss_shifts:
        return counted
    return torch.cat([counted[:, 1:], torch.zeros_like(counted[:, :1])], dim=1)


def _content(subject: Subject, tokens: torch.Tensor) -> torch.Tensor:
    mask = padding_mask(subject)
    return mask[1].bool() if mask is not None and mask[1].shape == tokens.shape else torch.ones_like(tokens).bool()


def _cuts(learnt: torch.Tensor) -> torch.Tensor:
    """For each row the middle one of its learnt positions, (B, 1); -1 for a row without."""
    rank = learnt.cumsum(1)
    middle = (rank[:, -1:] + 1) // 2
    return torch.where(middle > 0, ((rank < middle).sum(1, keepdim=True)), -1)


def _others(tokens: torch.Tensor, changed: torch.Tensor, special: frozenset[int]) -> torch.Tensor:
    """Other tokens of the same batch where `changed`; special ones stay, and none is put in."""
    fixed = torch.isin(tokens, torch.tensor(sorted(special), dtype=tokens.dtype, device=tokens.device))
    choices = torch.unique(tokens[~fixed])
    if len(choices) < 2:
        raise NotExamined("The batch has fewer than two different tokens to exchange.")
    rank = torch.searchsorted(choices, tokens.contiguous()).clamp(max=len(choices) - 1)
    return torch.where(changed & ~fixed, choices[(rank + 1) % len(choices)], tokens)


def _most_moved(before: Pass, after: Pass, kept: torch.Tensor) -> tuple[str, float]:
    moves: dict[str, float] = {}
    for path, tensor in before.outputs.items():
        other = after.outputs.get(path)
        own = _text_part(tensor, kept)
        if own is not None and other is not None and other.shape == tensor.shape:
            text = _text_part(other, kept)
            moves[path] = distance(own[kept], text[kept]) if text is not None else 0.0
    if not moves:
        raise NotExamined("The model returned nothing with a value for each token.")
    return max(moves.items(), key=lambda move: move[1])


def _text_part(tensor: torch.Tensor, kept: torch.Tensor) -> torch.Tensor | None:
    """The part of an output (B, P + L, D) that belongs to the text: its last L positions."""
    rows, length = kept.shape
    fits = tensor.ndim == 3 and tensor.is_floating_point() and tensor.shape[0] == rows and tensor.shape[1] >= length
    return tensor[:, -length:] if fits else None
