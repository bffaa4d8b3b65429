"""A mutant's id: the operator and a hash of the changed line, so that a reason written for it survives other edits."""

from __future__ import annotations

import hashlib
from collections import Counter

from labs.authoring.mutation.edit import Edit

_HEX_DIGITS = 8


class Ids:
    """Gives ids to the edits of one lab, in order: equal ones on equal lines are counted."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def of(self, operator: str, file: str, edit: Edit) -> str:
        """`drop_detach-1f2e3d4c`, and `drop_detach-1f2e3d4c-2` for the same change of an equal line further down.

        Line numbers, comments, formatting and the code around the statement are not part of it.
        """
        content = "\0".join((file, edit.scope, edit.statement, edit.before, edit.after))
        name = f"{operator}-{hashlib.sha256(content.encode()).hexdigest()[:_HEX_DIGITS]}"
        self._seen[name] += 1
        return name if self._seen[name] == 1 else f"{name}-{self._seen[name]}"
