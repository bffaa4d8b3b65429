"""The requirements that a lab's questions and their correct answers meet, checked by reading."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from labs.authoring.violation import Violation
from labs.grading.answers import ANSWERS, Answer, Value, blank, check_answers, correct_answers, refusal
from labs.grading.catalog import Lab, Question
from labs.grading.errors import CheckError
from labs.learner.lesson import lesson_file

RULE = "answers"
FEWEST_CHOICES = 3
_MEASURE = re.compile(r"^## Measure$(.*?)^## ", re.DOTALL | re.MULTILINE)


def lint_answers(lab: Lab) -> Iterator[Violation]:
    """Yield the violations in the questions of `lab.toml` and in the solution's answers.

    The blank file must be refused, the correct answers accepted, and each listed mistake refused with its sentence.
    """
    if not lab.questions:
        if (lab.solution / ANSWERS).exists():
            yield Violation(RULE, f"solutions/{lab.name}/{ANSWERS} exists, but lab.toml has no [[questions]].")
        return
    try:
        correct = correct_answers(lab)
    except CheckError as error:
        yield Violation(RULE, str(error))
        return
    if len(correct) < len(lab.questions):
        yield Violation(RULE, "lab.toml: two questions have the same id.")
    for question in lab.questions:
        yield from _question(question)
        yield from _answer(question, correct[question.id])
    yield from _file(lab, correct)
    yield from _lesson(lab)


def _question(question: Question) -> Iterator[Violation]:
    for name, text, ends in (("text", question.text, "?"), ("measure", question.measure, ".")):
        if not (text[:1].isupper() and text.endswith(ends)):
            where = f"lab.toml: the {name} of the question {question.id}"
            yield Violation(RULE, f"{where} is not a sentence: a capital letter first, `{ends}` at the end.")
    if question.form == "choice" and len(question.choices) < FEWEST_CHOICES:
        yield Violation(RULE, f"lab.toml: the question {question.id} has fewer than {FEWEST_CHOICES} choices.")
    if question.form != "choice" and question.choices:
        yield Violation(RULE, f"lab.toml: the question {question.id} has choices, but its form is {question.form}.")
    if question.form == "name" and not question.hint:
        yield Violation(RULE, f"lab.toml: the question {question.id} has no hint that shows the form of the name.")


def _answer(question: Question, correct: Answer) -> Iterator[Violation]:
    for value in (correct.value, *correct.also):
        found = refusal(question, correct, value)
        if found is not None:
            yield Violation(RULE, f"{ANSWERS}: the correct answer {value!r} to {question.id} is refused: {found}")
    for near, sentence in correct.wrong.items():
        found = refusal(question, correct, near)
        if found is None:
            yield Violation(RULE, f"{ANSWERS}: {near!r} is listed as wrong for {question.id}, but it is accepted.")
        elif not found.endswith(sentence):
            yield Violation(RULE, f"{ANSWERS}: {near!r} does not get its sentence for {question.id}: {found}")
        if not (sentence[:1].isupper() and sentence.endswith(".")):
            yield Violation(RULE, f"{ANSWERS}: what {near!r} is told for {question.id} is not a sentence.")
    told = [question.measure, question.hint, *correct.wrong.values()]
    told += [question.text] if question.form != "choice" else []
    for value in (correct.value, *correct.also):
        if any(_says(text, value) for text in told):
            yield Violation(RULE, f"a text about {question.id} contains its correct answer, {value!r}.")


def _says(text: str, value: Value) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(str(value))}(?!\w|\.\w)", text, re.IGNORECASE) is not None


def _file(lab: Lab, correct: dict[str, Answer]) -> Iterator[Violation]:
    """The two files as a learner has them: the one that `lab start` copies, and one with every correct answer."""
    unanswered = check_answers(lab, {ANSWERS: blank(lab)})
    yield from (
        Violation(RULE, f"the blank {ANSWERS} answers the question {one.id}.")
        for one in unanswered
        if one.outcome == "passed"
    )
    written = "".join(f"{key} = {json.dumps(one.value)}\n" for key, one in correct.items())
    yield from (
        Violation(RULE, f"an {ANSWERS} with the correct answer to {one.id} is refused: {one.message}")
        for one in check_answers(lab, {ANSWERS: written})
        if one.outcome != "passed"
    )


def _lesson(lab: Lab) -> Iterator[Violation]:
    path = lesson_file(lab)
    found = _MEASURE.search(path.read_text(encoding="utf-8")) if path.is_file() else None
    if found is not None and ANSWERS not in found.group(1):
        yield Violation(RULE, f"docs/{lab.lesson}.md: the section Measure does not mention {ANSWERS}.")
