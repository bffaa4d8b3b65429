"""The one renderer of a grade: a line per check while it runs, then the verdict and the feedback.

A grade's text is cleaned when the grade is made. Here it is only laid out: each line begins with our indentation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from labs.cli.console import OUTCOME_MARKS, mark, next_command, out, print_hanging, with_pack
from labs.cli.which_lab import is_capstone
from labs.grading.catalog import Lab
from labs.learner.pack import has_solutions
from labs.locale import message, translated

if TYPE_CHECKING:
    from labs.grading.feedback import FeedbackStep
    from labs.grading.grades import CheckResult, Grade

VERDICT_STYLES = {"passed": "good", "failed": "bad", "error": "warn"}
VERDICT_MARKS = {key: (OUTCOME_MARKS[key][0], style) for key, style in VERDICT_STYLES.items()}
VERDICT_WORDS = {"passed": "passed", "failed": "not fixed yet", "error": "the grader failed"}
ROLE_STYLES = {
    "text": "",
    "requirement": "strong",
    "problem": "bad",
    "expected": "good",
    "note": "quiet",
    "command": "command",
    "place": "",
}
NARROW = 60
"""Below this width each label has its own line."""
_LONGEST_REASON = 300


@contextlib.contextmanager
def stream(lab: Lab, quiet: bool) -> Iterator[Callable[[CheckResult], None] | None]:
    """Yield the function to call with each check's result. On a terminal a spinner below shows that the grade runs.

    The checks of a capstone are not shown one by one: their titles would say where its faults are.
    """
    if quiet:
        yield None
        return
    out.print()
    print_hanging("  ", Text(f"{lab.id} · {translated(lab.title)}", style="strong"))
    out.print()
    with out.status(f"[quiet]{translated('grading …')}[/]", spinner="dots", spinner_style="quiet"):
        yield show_answer if is_capstone(lab) else show_check


def show_check(check: CheckResult) -> None:
    """One check that has just ended."""
    aside = "not run: a check above failed" if check.outcome == "not_run" else check.kind
    if check.kind == "answer" and check.outcome == "failed":
        aside = "answer: not given yet" if check.measured is None else "answer: wrong"
    prefix = Text.assemble("  ", mark(OUTCOME_MARKS, check.outcome), " ")
    print_hanging(prefix, Text.assemble(translated(check.title), "  ", (translated(aside), "quiet")))


def show_answer(check: CheckResult) -> None:
    """Show only the learner's answers among the checks of a capstone."""
    if check.kind == "answer":
        show_check(check)


def show_grade(grade: Grade, lab: Lab, folder: Path | None = None) -> None:
    """The verdict, and for a refusal the steps from the symptom to the next measurement.

    `folder`: where the learner's files are, to name the line that a refusal is about.
    """
    from labs.grading.feedback import feedback_steps

    facts = " · ".join([*_count(grade), message("{seconds} s", seconds=f"{grade.seconds:.1f}")])
    if _ran(grade) and is_capstone(lab):
        from labs.cli.show_capstone import show_faults

        show_faults(grade, lab, show_check)
    words = "fixed, but not answered yet" if _only_answers_failed(grade) else VERDICT_WORDS[grade.verdict]
    verdict = (translated(words), VERDICT_STYLES[grade.verdict])
    if _ran(grade):
        out.print()
    head = Text.assemble("  ", mark(VERDICT_MARKS, grade.verdict), " ")
    print_hanging(head, Text.assemble(verdict, "  ", (facts, "quiet")))
    out.print()
    steps = feedback_steps(grade, lab, diagnosis=has_solutions())
    if is_capstone(lab):
        from labs.cli.show_capstone import without_the_fault

        steps = without_the_fault(steps, grade, lab)
    _show_steps([*steps, *_place(grade, lab, folder)])
    if grade.verdict == "passed":
        if has_solutions():
            next_command(f"lab solution {lab.id}", "compare with the shipped solution")
        next_command("lab next", "the lab to do next, and why")
        out.print()


def show_verdict(grade: Grade, lab: Lab) -> None:
    """One of several labs: the verdict, and below it the first line of the reason."""
    from labs.grading.submission_text import shorten

    print_hanging(Text.assemble("  ", mark(VERDICT_MARKS, grade.verdict), f" {lab.id}  "), Text(translated(lab.title)))
    if grade.reason:
        reason = translated(grade.reason).partition("\n")[0]
        print_hanging(" " * 8, Text(shorten(reason, _LONGEST_REASON), style="quiet"))


def show_total(grades: Sequence[Grade]) -> None:
    """How many of several labs passed."""
    passed = sum(grade.passed for grade in grades)
    style = "good" if passed == len(grades) else "bad"
    out.print(
        Text.assemble("\n  ", (message("{passed} of {labs} labs passed", passed=passed, labs=len(grades)), style), "\n")
    )


def _place(grade: Grade, lab: Lab, folder: Path | None) -> list[FeedbackStep]:
    """The line of the learner's file, last: next to the prompt, where an editor's terminal makes it a link."""
    from labs.grading.feedback import FeedbackStep
    from labs.learner.place import place_of

    place = place_of(grade, lab, folder) if folder is not None and grade.verdict == "failed" else None
    return [] if place is None else [FeedbackStep("Place", str(place), "place")]


def _count(grade: Grade) -> list[str]:
    if grade.verdict == "error":
        return []
    if not _ran(grade):
        return [translated("no check ran")]
    answers = [check for check in grade.checks if check.kind == "answer"]
    checks = [check for check in grade.checks if check.kind != "answer"]
    return [*_counted(checks, _CHECKS), *_counted(answers, _ANSWERS)]


_CHECKS = ("1 check", "{total} checks", "{failed} of 1 check failed", "{failed} of {total} checks failed")
_ANSWERS = (
    "1 answer",
    "{total} answers",
    "{failed} of 1 answer missing or wrong",
    "{failed} of {total} answers missing or wrong",
)


def _counted(checks: Sequence[CheckResult], forms: Sequence[str]) -> list[str]:
    """How many there are, and how many of them failed. The forms: for one and for several, then with failures."""
    total, failed = len(checks), sum(check.outcome == "failed" for check in checks)
    form = forms[2 * bool(failed) + (total != 1)]
    return [message(form, total=total, failed=failed)] if checks else []


def _only_answers_failed(grade: Grade) -> bool:
    return bool(grade.failed_checks) and all(
        check.outcome == "passed" for check in grade.checks if check.kind != "answer"
    )


def _ran(grade: Grade) -> bool:
    return any(check.outcome != "not_run" for check in grade.checks)


def _show_steps(steps: Sequence[FeedbackStep]) -> None:
    narrow = out.width < NARROW
    indent = "    " if narrow else " " * (4 + max((cell_len(translated(step.label)) for step in steps), default=0))
    for step in steps:
        label = translated(step.label)
        head: Text | str = Text(f"{' ' * (len(indent) - 2 - cell_len(label))}{label}  ", style="quiet")
        if narrow:
            out.print(Text(f"  {label}", style="quiet"))
            head = indent
        text = step.text if step.role in ("command", "place") else translated(step.text)
        told = with_pack(text) if step.role in ("command", "note") else text
        body = Text(told, style=ROLE_STYLES[step.role])
        if step.role in ("command", "place"):  # never wrapped by us: it is copied, or read by an editor
            out.print(Text.assemble(head, body), soft_wrap=True)
        else:
            print_hanging(head, body)
    if steps:
        out.print()
