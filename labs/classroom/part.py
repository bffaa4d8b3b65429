"""A part of a class's submissions, for a run on several machines: each machine grades one part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from labs.classroom.submissions import Submitted
from labs.grading.errors import UsageError


@dataclass(frozen=True)
class Part:
    """Part `number`, from 1, of `count`. The parts do not overlap and together cover all submissions."""

    number: int
    count: int

    @classmethod
    def read(cls, text: str) -> Part:
        """From text such as `2/4`. Raises UsageError."""
        found = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", text)
        if found is None or int(found[1]) > int(found[2]):
            raise UsageError(f"--part {text} is not a part. Give its number and how many there are, such as 2/4.")
        return cls(int(found[1]), int(found[2]))

    def of(self, submitted: Sequence[Submitted]) -> list[Submitted]:
        """What this part holds: every `count`-th submission, so that each lab is shared out evenly."""
        in_order = sorted(submitted, key=lambda one: (one.lab.id, one.student))
        return in_order[self.number - 1 :: self.count]


WHOLE = Part(1, 1)
