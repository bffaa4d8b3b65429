"""Changes only the tokens after a position. In a causal model, nothing before them may change.

Only positions with a target are compared, so a bidirectional prefix, which has no targets, does not count.
"""

from __future__ import annotations

from typing import Any

import torch

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import labels, special_ids, token_ids
from debugkit.interventions.padding import padding_mask
from debugkit.interventions.passes import Pass, distance, evaluate, floor
from debugkit.interventions.position_values import PositionValues
from debugkit.measurements.label_alignment import FutureTokens
from debugkit.measurements.label_alignment.measure import align, change_the_first_label
from debugkit.setup import TrainingSetup
from debugkit.structure import map_tensors

_AHEAD = 4
"""Tokens. An output beside a causal one may look so far ahead: a head for multi-token prediction reads the next token
and predicts the one after it."""


def change_later_tokens(setup: TrainingSetup) -> FutureTokens:
    """One pass with other tokens in the second half of the learnt positions, and two to check that it should matter.

    If an output moves, one more pass changes only the row that moved most: tokens of other samples, which compete for
    the capacity of an expert, are no later tokens.
    """
    learnt = _learnt_positions(setup)  # (B, L): outputs with a target
    ids = token_ids(setup)
    assert ids is not None
    path, tokens = ids
    cut = _cuts(learnt)  # (B, 1)
    place = torch.arange(tokens.shape[1], device=tokens.device)[None]
    other = _others(tokens, (place > cut) & _content(setup, tokens), special_ids(setup))
    kept = learnt & (place <= cut) & (other != tokens).any(1, keepdim=True)
    if not bool(kept.any()):
        raise NotExamined("No token after a learnt position could be changed.")
    before, threshold = floor(setup)
    batch = _with(setup, path, other)
    after = evaluate(setup, batch)
    output, moved, row = _most_moved(before, after, kept)
    far = kept & (place <= cut - _AHEAD)
    if moved > threshold and _is_causal_beside(before, after, kept, output, threshold):
        if not bool(far.any()):
            raise NotExamined(
                f"Beside a causal output, another may look {_AHEAD} tokens ahead, and the text is too short."
            )
        kept = far
        output, moved, row = _most_moved(before, after, kept)
    if moved > threshold:
        kept = kept & (torch.arange(len(kept), device=kept.device) == row)[:, None]
        batch = _with(setup, path, torch.where(kept.any(1, keepdim=True), other, tokens))
        output, moved, _ = _most_moved(before, evaluate(setup, batch), kept)
    module = _first_module_to_move(setup, batch, kept, threshold) if moved > threshold else None
    return FutureTokens(output, moved, threshold, int(kept.sum()), module or "")


def _with(setup: TrainingSetup, path: str, tokens: torch.Tensor) -> Any:
    return map_tensors(setup.fresh_batch(), lambda name, tensor: tokens.clone() if name == path else tensor)


def _first_module_to_move(setup: TrainingSetup, batch: Any, kept: torch.Tensor, threshold: float) -> str | None:
    """Run two more passes to find the module."""
    with PositionValues(setup, kept) as first:
        evaluate(setup)
    with PositionValues(setup, kept) as second:
        evaluate(setup, batch)
    return first.first_difference(second, threshold)


def _learnt_positions(setup: TrainingSetup) -> torch.Tensor:
    """Which outputs have a target, (B, L). Raises NotExamined unless the model is known to be causal."""
    if setup.declare.causal is False:
        raise NotExamined("The model is declared as not causal.")
    ids, found = token_ids(setup), labels(setup)
    if ids is None:
        raise NotExamined("The batch has no token ids (B, L).")
    if found is None or found[1].shape != ids[1].shape:
        if setup.declare.causal:
            return _content(setup, ids[1])
        raise NotExamined("The batch has no labels for each of its token ids: pass declare=Declare(causal=True).")
    counted = found[1] >= 0
    if setup.declare.causal:
        return counted
    align(setup)  # free, and raises NotExamined before any pass runs
    alignment = change_the_first_label(setup)
    if alignment.labels_are_ids and not alignment.loss_shifts:
        raise NotExamined(
            "The loss compares output and label of the same token: the model reconstructs, it does not predict."
        )
    if not alignment.loss_shifts:
        return counted
    return torch.cat([counted[:, 1:], torch.zeros_like(counted[:, :1])], dim=1)


def _content(setup: TrainingSetup, tokens: torch.Tensor) -> torch.Tensor:
    mask = padding_mask(setup)
    return mask.valid if mask is not None and mask.valid.shape == tokens.shape else torch.ones_like(tokens).bool()


def _cuts(learnt: torch.Tensor) -> torch.Tensor:
    """The middle learnt position of each row, (B, 1); -1 for a row without any."""
    rank = learnt.cumsum(1)
    middle = (rank[:, -1:] + 1) // 2
    return torch.where(middle > 0, ((rank < middle).sum(1, keepdim=True)), -1)


def _others(tokens: torch.Tensor, changed: torch.Tensor, special: frozenset[int]) -> torch.Tensor:
    """Other tokens of the same batch where `changed`. Special tokens stay and are never inserted."""
    fixed = torch.isin(tokens, torch.tensor(sorted(special), dtype=tokens.dtype, device=tokens.device))
    choices = torch.unique(tokens[~fixed])
    if len(choices) < 2:
        raise NotExamined("The batch has fewer than two different tokens, so none can be exchanged.")
    rank = torch.searchsorted(choices, tokens.contiguous()).clamp(max=len(choices) - 1)
    return torch.where(changed & ~fixed, choices[(rank + 1) % len(choices)], tokens)


def _most_moved(before: Pass, after: Pass, kept: torch.Tensor) -> tuple[str, float, int]:
    """The output that moved most, by how much, and the row of the batch that moved most."""
    moves: dict[str, tuple[float, int]] = {}
    for path, tensor in before.outputs.items():
        other = after.outputs.get(path)
        own = _text_part(tensor, kept)
        if own is not None and other is not None and other.shape == tensor.shape:
            text = _text_part(other, kept)
            moves[path] = (0.0, 0) if text is None else (distance(own[kept], text[kept]), _row(own, text, kept))
    if not moves:
        raise NotExamined("The model returned nothing with a value for each token.")
    path = max(moves, key=lambda path: moves[path][0])
    return path, *moves[path]


def _is_causal_beside(before: Pass, after: Pass, kept: torch.Tensor, output: str, threshold: float) -> bool:
    """Whether another output of the same shape does not depend on later tokens."""
    shape = before.outputs[output].shape
    others = {path: tensor for path, tensor in before.outputs.items() if path != output and tensor.shape == shape}
    return any(_most_moved(Pass({path: own}, before.loss), after, kept)[1] <= threshold for path, own in others.items())


def _row(own: torch.Tensor, other: torch.Tensor, kept: torch.Tensor) -> int:
    gaps = (own - other).abs().nan_to_num(0.0).amax(-1).masked_fill(~kept, 0.0)
    return int(gaps.amax(1).argmax())


def _text_part(tensor: torch.Tensor, kept: torch.Tensor) -> torch.Tensor | None:
    """The part of an output (B, P + L, D) that belongs to the text: its last L positions."""
    rows, length = kept.shape
    fits = tensor.ndim == 3 and tensor.is_floating_point() and tensor.shape[0] == rows and tensor.shape[1] >= length
    return tensor[:, -length:] if fits else None
