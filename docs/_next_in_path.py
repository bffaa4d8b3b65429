"""The next lab of a lesson's card: the one that follows on a path, and that a learner of this path can do by then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from labs.grading.catalog import Lab
from labs.learner.paths import LearningPath


def next_in_path(lab: Lab, labs: Sequence[Lab], paths: Iterable[LearningPath]) -> Lab | None:
    """The next lab on the first path that goes on after `lab`; None where it is the last on all its paths.

    On a path, all labs before it are done. A lab is passed over if it needs another one that is not, or if `lab` builds
    on it.
    """
    by_id = {one.id: one for one in labs}
    below = _below(lab, by_id)
    for path in paths:
        order = path.of(labs)
        if lab not in order:
            continue
        at = order.index(lab)
        done = {one.id for one in order[: at + 1]} | below
        for following in order[at + 1 :]:
            if following.id not in below and done.issuperset(following.prerequisites):
                return following
    return None


def _below(lab: Lab, by_id: dict[str, Lab]) -> set[str]:
    """All labs that `lab` builds on, also through others."""
    found: set[str] = set()
    todo = list(lab.prerequisites)
    while todo:
        number = todo.pop()
        if number not in found and number in by_id:
            found.add(number)
            todo += by_id[number].prerequisites
    return found
