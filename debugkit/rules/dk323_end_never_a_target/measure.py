"""Runs one pass, and compares the targets of each cross-entropy with the ids of the batch, one place later.

A target counts if the loss depends on its term: it is not the ignored index, its class has a weight, and no mask takes
its term out afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from debugkit.finding import NotExamined
from debugkit.interventions.batch_roles import is_index, labels
from debugkit.interventions.learnt_targets import LearntTargets, learnt_targets
from debugkit.recorders.token_calls import LOSSES
from debugkit.rules.dk323_end_never_a_target import EndsOfTexts, Shown, TextEnds
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in

_SHORTEST = 3
_ROUND = 8
"""Rows of a multiple of this length may have been padded to it, so that the longest row has padding, too."""
_USUAL_PADDING = 0


def ends_of_the_texts(setup: TrainingSetup) -> EndsOfTexts:
    """Compare the ids of the batch with the targets of each cross-entropy of one pass."""
    entries = _ids(setup)
    if not entries:
        raise NotExamined("The batch has no token ids (B, L).")
    losses = [loss for loss in learnt_targets(setup).losses if loss.operation in LOSSES]
    masks = [t for _, t in tensors_in(setup.batch) if t.ndim == 2 and bool(((t == 0) | (t == 1)).all())]
    found = []
    for path, ids in entries:
        learnt = [(loss, counted) for loss in losses if (counted := _counted(loss, ids)) is not None]
        if learnt:
            found.append(_ends(setup, path, ids, learnt, masks))
    if not found:
        raise NotExamined("No cross-entropy was seen whose targets are the next tokens of the batch.")
    return EndsOfTexts(tuple(found))


def _ids(setup: TrainingSetup) -> list[tuple[str, Tensor]]:
    found = labels(setup)
    own = found[0] if found is not None else None
    entries = [(path, t) for path, t in tensors_in(setup.batch) if path != own and t.ndim == 2 and is_index(t)]
    return [(path, t) for path, t in entries if t.shape[1] >= _SHORTEST and int(t.max()) > 1 and int(t.min()) >= 0]


def _counted(loss: LearntTargets, ids: Tensor) -> Tensor | None:
    """Which of the ids (B, L) are targets that count; None if these are not the ids, one place later."""
    size, length = ids.shape
    if loss.targets.numel() % size:
        return None
    targets, counts = loss.targets.reshape(size, -1).to(ids.device), loss.counts.reshape(size, -1).to(ids.device)
    if not bool(counts.any()):
        return None
    for first in _places(targets.shape[1], length):  # the first id's place among the targets
        place = torch.arange(length, device=ids.device) + first
        inside = (place >= 0) & (place < targets.shape[1])
        here = counts[:, place[inside]]
        if int(here.sum()) == int(counts.sum()) and bool((targets[:, place[inside]] == ids[:, inside])[here].all()):
            found = torch.zeros_like(ids, dtype=torch.bool)
            found[:, inside] = here
            return found
    return None


def _places(targets: int, length: int) -> Iterator[int]:
    """The ids are at the end of the targets, or one place before it, where the last target is filled up."""
    if targets != length:  # equally many: the targets of the same position
        yield targets - length
    yield targets - length - 1


def _ends(
    setup: TrainingSetup, path: str, ids: Tensor, learnt: list[tuple[LearntTargets, Tensor]], masks: list[Tensor]
) -> TextEnds:
    loss, counted = max(learnt, key=lambda one: int(one[1].sum()))
    rows, whole, length = counted.any(1), ids, ids.shape[1]
    ids, counted = ids[rows], counted[rows]
    place = torch.arange(length, device=ids.device)
    last = torch.where(counted, place, -1).amax(1)  # (B,)
    following = ids.gather(1, (last + 1).clamp(max=length - 1)[:, None])[:, 0]
    common = bool((last + 1 < length).all()) and bool((following == following[0]).all())
    end = int(following[0]) if common else None
    return TextEnds(
        path=path,
        rows=len(ids),
        targets=int(counted.sum()),
        end=end,
        as_target=0 if end is None else sum(int(((whole == end) & counts).sum()) for _, counts in learnt),
        last_targets=len(torch.unique(ids.gather(1, last[:, None]))),
        lengths=len(torch.unique(counted.sum(1))),
        shown=_shown(ids, last, [mask[rows].bool() for mask in masks if mask.shape == whole.shape]) if common else "",
        called_padding=end is not None and _is_called_padding(setup.model, end),
        at=loss.at,
    )


def _shown(ids: Tensor, last: Tensor, masks: list[Tensor]) -> Shown:
    """How the token behind the last target is known to be content: a mask ends with it, or the longest row does."""
    length = ids.shape[1]
    place = torch.arange(length, device=ids.device)
    for mask in masks:
        if bool((torch.where(mask.to(ids.device), place, -1).amax(1) == last + 1).all()):
            return "mask"
    behind = length - 1 - last
    is_filled = bool((ids == ids.gather(1, (last + 1)[:, None]))[place > last[:, None]].all())
    is_padded = int(behind.min()) == 1 and int(behind.max()) > 1 and bool(length % _ROUND)
    if is_filled and is_padded and int(ids[0, last[0] + 1]) != _USUAL_PADDING:
        return "longest row"
    return ""


def _is_called_padding(model: nn.Module, token: int) -> bool:
    pads: set[Any] = {module.padding_idx for module in model.modules() if isinstance(module, nn.Embedding)}
    ends: set[Any] = set()
    for module in model.modules():
        for config in (getattr(module, "config", None), getattr(module, "generation_config", None)):
            for part in (config, getattr(config, "text_config", None)):
                pads.add(getattr(part, "pad_token_id", None))
                end = getattr(part, "eos_token_id", None)
                ends |= set(end) if isinstance(end, list | tuple) else {end}
    return token in pads and token not in ends
