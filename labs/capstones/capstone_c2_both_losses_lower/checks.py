"""Requirements for a review. Runs in the grader's process; judges the marks, and never their words.

A fault is a range of lines of the new file, found by the text of its first and last line in the change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labs.grading import Submission, check, expect

CHANGE = Path(__file__).with_name("handout") / "change.diff"
MOST_RIGHT_LINES = 1


@dataclass(frozen=True)
class Fault:
    """A faulty part of the change, and the kinds that describe it."""

    file: str
    first: str
    last: str
    kinds: tuple[str, ...]


DATA = Fault("data.py", "    tables = np.random", "    return tables[held_out:]", ("leak",))
LOSS = Fault("model.py", "    error = errors(", "    return (error * ~batch", ("padding",))
SETUP = Fault("train.py", "    optimizer = make_optimizer", "        unfreeze(policy)", ("untrained",))
UPDATE = Fault("train.py", "    for number, batch", "            running = torch.zeros", ("gradient",))
EPISODES = Fault("evaluate.py", "    controller = Controller", "    successes = [run_episode", ("state",))
FAULTS = (DATA, LOSS, SETUP, UPDATE, EPISODES)


def new_lines(change: str) -> dict[str, dict[int, str]]:
    """The lines of the new files that a unified diff shows, by file and number."""
    shown: dict[str, dict[int, str]] = {}
    number = 0
    for line in change.splitlines():
        if line.startswith("+++ b/"):
            lines = shown.setdefault(line.removeprefix("+++ b/"), {})
        elif found := re.match(r"@@ -\S+ \+(\d+)", line):
            number = int(found[1])
        elif line.startswith(("+", " ")) and not line.startswith("+++"):
            lines[number] = line[1:]
            number += 1
    return shown


def lines_of(fault: Fault, shown: Mapping[str, Mapping[int, str]]) -> range:
    """The numbers of a fault's lines. Raises ValueError unless both ends occur once."""
    (first,) = (number for number, text in shown[fault.file].items() if text.startswith(fault.first))
    (last,) = (number for number, text in shown[fault.file].items() if text.startswith(fault.last))
    return range(first, last + 1)


def judge(submission: Submission, fault: Fault) -> None:
    """The fault must be marked, and every mark on it must be of its kind."""
    lines = lines_of(fault, new_lines(CHANGE.read_text(encoding="utf-8")))
    marks = submission.observe("review")["marks"]
    own = [mark for mark in marks if mark["file"] == fault.file and mark["line"] in lines]
    expect("marked" if own else "not marked", "a fault of the change").equals("marked")
    for mark in own:
        kind = "its kind" if mark["why"] in fault.kinds else "another kind"
        expect(kind, f"the `why` of {mark['file']}, line {mark['line']}, where something is wrong,").equals("its kind")


@check(
    kind="behaviour",
    title="The review finds what is wrong with the data",
    property="Where the change makes the data wrong, the review must have a mark of the right kind, if there is such a place.",
    instrument="diff -u before/data.py after/data.py",
)
def test_fault_in_the_data_is_marked(submission: Submission) -> None:
    judge(submission, DATA)


@check(
    kind="behaviour",
    title="The review finds what is wrong with the loss",
    property="Where the change makes the loss wrong, the review must have a mark of the right kind, if there is such a place.",
    instrument="diff -u before/model.py after/model.py",
)
def test_fault_in_the_loss_is_marked(submission: Submission) -> None:
    judge(submission, LOSS)


@check(
    kind="behaviour",
    title="The review finds what is wrong with the setup of the training",
    property="Where the change makes the setup of the training wrong, the review must have a mark of the right kind, if there is such a place.",
    instrument="debugkit.check(policy, batch, loss_fn, optimizer)",
)
def test_fault_in_the_setup_is_marked(submission: Submission) -> None:
    judge(submission, SETUP)


@check(
    kind="behaviour",
    title="The review finds what is wrong with an update",
    property="Where the change makes an update wrong, the review must have a mark of the right kind, if there is such a place.",
    instrument="with debugkit.watch(policy, optimizer) as run: ...",
)
def test_fault_in_the_update_is_marked(submission: Submission) -> None:
    judge(submission, UPDATE)


@check(
    kind="behaviour",
    title="The review finds what is wrong with the episodes",
    property="Where the change makes the evaluation wrong, the review must have a mark of the right kind, if there is such a place.",
    instrument="debugkit.trace_batches(policy)",
)
def test_fault_in_the_episodes_is_marked(submission: Submission) -> None:
    judge(submission, EPISODES)


@check(
    kind="invariant",
    title="What is right is left alone",
    property=f"At most {MOST_RIGHT_LINES} mark may be on lines with which nothing is wrong.",
    instrument="patch -d after -p1 < change.diff",
)
def test_right_lines_are_left_alone(submission: Submission) -> None:
    shown = new_lines(CHANGE.read_text(encoding="utf-8"))
    faulty = {(fault.file, line) for fault in FAULTS for line in lines_of(fault, shown)}
    marks = submission.observe("review")["marks"]
    right = {(mark["file"], mark["line"]) for mark in marks} - faulty
    expect(len(right), "the number of marks on lines with which nothing is wrong").at_most(MOST_RIGHT_LINES)


@check(
    kind="invariant",
    title="The decision agrees with the marks",
    property="`decision` must be `request_changes` if anything is refused, else `merge`.",
    instrument="lab run c2",
)
def test_decision_agrees_with_the_marks(submission: Submission) -> None:
    found: Mapping[str, Any] = submission.observe("review")
    marks: Sequence[Any] = found["marks"]
    expect(found["decision"], "the decision").equals("request_changes" if marks else "merge")
