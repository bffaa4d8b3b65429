"""Count the labels of `ctc_loss` that are its blank, without waiting for a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_LENGTHS, _BLANK = 3, 4
"""Positions of the arguments `target_lengths` and `blank`."""


def count_blanks(targets: torch.Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The fields of `BlankLabels`; empty if the targets have neither of the two forms."""
    blank = args[_BLANK] if len(args) > _BLANK else kwargs.get("blank", 0)
    given = args[_LENGTHS] if len(args) > _LENGTHS else kwargs.get("target_lengths")
    if given is None or targets.ndim not in (1, 2) or not targets.numel():
        return []
    lengths = torch.as_tensor(given).detach().to(targets.device).reshape(-1)
    is_blank = targets.detach() == blank
    if targets.ndim == 2:
        if len(lengths) != len(targets):
            return []
        valid = torch.arange(targets.shape[1], device=targets.device) < lengths[:, None]
        blanks = (is_blank & valid).sum(1)
    else:  # the sequences are joined
        ends = lengths.cumsum(0)
        before = torch.cat([is_blank.new_zeros(1, dtype=torch.long), is_blank.cumsum(0)])
        last = len(targets)
        blanks = before[ends.clamp(max=last)] - before[(ends - lengths).clamp(max=last)]
    holds = (blanks > 0) & (blanks < lengths)
    return [
        lengths.new_full((), blank),
        (blanks * holds).sum(),
        holds.sum(),
        lengths.new_full((), len(lengths)),
    ]
