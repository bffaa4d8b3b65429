"""Which lab to do next, and why: by what the labs build on, and by what was hard for the learner.

A pure function of the labs and the progress. The order of the rules:

1. The lab that was started last. If it was refused often and builds on labs that were not done, one of those.
2. A lab was hard: another of its chapter that is no harder, once.
3. The first lab whose prerequisites are done, in the order of the path; without a path, those with fewer stars first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from labs.grading.catalog import Lab
from labs.learner.progress import LabProgress, Progress

REFUSALS = 3
"""A lab with this many failed grades was hard."""
HINTS = 2
"""So was a lab with this many hints."""
SLOW = 3.0
"""Or one that took this many times the lab's minutes."""
SESSION_S = 6 * 3600
"""A longer time from start to pass includes a break and is ignored."""
_DONE = ("passed", "given_up")


@dataclass(frozen=True)
class Suggestion:
    """A lab, the command to go on with, and the reason, one clause in English."""

    lab: Lab
    command: Literal["start", "grade"]
    why: str


def next_lab(labs: Sequence[Lab], progress: Progress, path: Sequence[Lab] | None = None) -> Suggestion | None:
    """What to do next; None if every lab is done.

    `path`: the labs to choose from, in their order; what they build on may be elsewhere in `labs`. Default: all labs.
    """
    state = _State({lab.id: lab for lab in labs}, progress)
    wanted = list(path) if path is not None else sorted(labs, key=lambda lab: lab.difficulty)
    todo = [lab for lab in wanted if not state.is_done(lab)]
    ready = [lab for lab in todo if state.is_ready(lab)]
    return state.continued(todo) or state.practice(ready) or state.first(ready) or state.below(todo)


def hard_because(lab: Lab, done: LabProgress) -> str | None:
    """Why a lab that is done was hard for this learner, as the end of a clause; None if it was not."""
    refused = (done.grades_to_pass or done.grades) - (done.status == "passed")
    hints = done.hints + done.diagnosed if done.hints_to_pass is None else done.hints_to_pass
    seconds = done.seconds_to_fix
    if done.status == "given_up":
        return f"because you gave up lab {lab.id}"
    if refused >= REFUSALS:
        return f"because lab {lab.id} was refused {refused} times"
    if hints >= HINTS:
        return f"because lab {lab.id} took {hints} hints"
    if seconds is not None and SLOW * lab.minutes * 60 <= seconds <= SESSION_S:
        return f"because lab {lab.id} took {seconds / 60:.0f} minutes, not {lab.minutes}"
    return None


@dataclass(frozen=True)
class _State:
    by_id: Mapping[str, Lab]
    progress: Progress

    def continued(self, todo: Sequence[Lab]) -> Suggestion | None:
        """The lab that was started last, or what it builds on."""
        begun = [lab for lab in todo if self.progress.status(lab.id) == "started"]
        if not begun:
            return None
        last = max(begun, key=lambda lab: self.progress.labs[lab.id].started_at)
        refused = self.progress.labs[last.id].grades
        before = self._open_prerequisite(last)
        if refused >= REFUSALS and before is not None:
            return self._suggested(before, f"lab {last.id} builds on it, and was refused {refused} times")
        return self._suggested(last, "in progress")

    def practice(self, ready: Sequence[Lab]) -> Suggestion | None:
        """A lab of the chapter of the last hard lab, unless a later one of that chapter was not hard."""
        practised: set[str] = set()
        for lab in sorted(self._done_labs(), key=lambda lab: _end(self.progress.labs[lab.id]), reverse=True):
            reason = hard_because(lab, self.progress.labs[lab.id])
            similar = [one for one in ready if one.chapter == lab.chapter and one.difficulty <= lab.difficulty]
            if reason and similar and lab.chapter not in practised:
                easiest = min(similar, key=lambda one: one.difficulty)
                return self._suggested(easiest, f"more of the chapter {lab.chapter}, {reason}")
            if not reason:
                practised.add(lab.chapter)
        return None

    def first(self, ready: Sequence[Lab]) -> Suggestion | None:
        """The first lab that can be done now."""
        if not ready:
            return None
        before = [one for one in self._prerequisites(ready[0]) if self.progress.status(one.id) == "passed"]
        if not before:
            return self._suggested(ready[0], "needs no other lab first")
        last = max(before, key=lambda one: _end(self.progress.labs[one.id]))
        return self._suggested(ready[0], f"builds on lab {last.id}, which you passed")

    def below(self, todo: Sequence[Lab]) -> Suggestion | None:
        """A lab outside of the path that the path's first one builds on."""
        if not todo:
            return None
        before = self._open_prerequisite(todo[0])
        return self._suggested(before or todo[0], f"lab {todo[0].id} builds on it" if before else "the next in order")

    def is_done(self, lab: Lab) -> bool:
        """Whether it was passed or given up."""
        return self.progress.status(lab.id) in _DONE

    def is_ready(self, lab: Lab) -> bool:
        """Whether what it builds on is done."""
        return all(self.is_done(one) for one in self._prerequisites(lab))

    def _prerequisites(self, lab: Lab) -> list[Lab]:
        return [self.by_id[number] for number in lab.prerequisites if number in self.by_id]

    def _open_prerequisite(self, lab: Lab) -> Lab | None:
        """The first lab below this one that is not done and can be done now."""
        waiting, seen = self._prerequisites(lab), {lab.id}
        while waiting:
            one = waiting.pop(0)
            if one.id in seen or self.is_done(one):
                continue
            if self.is_ready(one):
                return one
            seen.add(one.id)
            waiting += self._prerequisites(one)
        return None

    def _done_labs(self) -> list[Lab]:
        return [lab for lab in self.by_id.values() if self.is_done(lab)]

    def _suggested(self, lab: Lab, why: str) -> Suggestion:
        return Suggestion(lab, "grade" if self.progress.status(lab.id) == "started" else "start", why)


def _end(done: LabProgress) -> datetime:
    """When a lab was passed or given up."""
    return done.passed_at or done.gave_up_at or done.started_at
