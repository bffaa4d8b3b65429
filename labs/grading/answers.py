"""A lab's questions: their answers are found by measuring, and the learner writes them into `answers.toml`.

The questions are in `lab.toml`, the correct answers in the solution's `answers.toml`. A message quotes what the learner
wrote and says what to measure; it never contains the correct answer. Nothing here decides how code is graded.
"""

from __future__ import annotations

import base64
import tomllib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from labs.grading.catalog import Lab, Question
from labs.grading.errors import CheckError, MissingFileError, SubmissionFileError
from labs.grading.files import read_text
from labs.grading.grades import CheckResult, Outcome
from labs.grading.submission_text import clean, shorten
from labs.locale import message, translated

ANSWERS = "answers.toml"
"""The file's name, in the learner's folder of a lab and in the solution."""
PACKED = "answers.packed"
"""The correct answers in the lab's folder of a course pack, which has no solutions."""
LARGEST = 16 * 1024
"""Characters of the learner's file; an answer is one line."""
_LONGEST_SHOWN = 80

Value = str | int | float


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The correct answer to one question, in the solution's `answers.toml`."""

    value: Value
    also: tuple[Value, ...] = ()
    """Other spellings that are correct."""
    tolerance: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    """How far a number may be from the value, as a share of the value."""
    wrong: dict[str, str] = {}
    """Answers that a mistake in the measurement gives, each with a sentence about that mistake."""


def blank(lab: Lab) -> str:
    """The text of the file that `lab start` copies: every question as a comment above an empty answer.

    It is in the current language.
    """
    first = "# Lab {id}: measure, then write each answer between the quotes. `lab grade {id}` checks them."
    lines = [message(first, id=lab.id)]
    for one in lab.questions:
        form = translated(_sentence(_format_of(one)))
        lines += ["", f"# {translated(one.text)}", f"# {form}", f'{one.id} = ""']
    return "\n".join(lines) + "\n"


def check_answers(lab: Lab, source: Path | str | Mapping[str, str | bytes]) -> tuple[CheckResult, ...]:
    """The result of each question, in order, for a submission as `grade` takes it; none for a lab without questions.

    Raises CheckError if the solution's answers are missing or do not belong to the questions.
    """
    if not lab.questions:
        return ()
    correct = correct_answers(lab)
    try:
        written, unknown = _written(lab, source)
    except SubmissionFileError as error:
        return tuple(_result(one, "failed", str(error)) for one in lab.questions)
    return tuple(_judged(one, correct[one.id], written.get(one.id, ""), unknown) for one in lab.questions)


def not_run(lab: Lab, why: str) -> tuple[CheckResult, ...]:
    """The results of questions that were not checked."""
    return tuple(_result(one, "not_run", why) for one in lab.questions)


def correct_answers(lab: Lab) -> dict[str, Answer]:
    """The correct answer to each question, by its id. Raises CheckError."""
    path, beside = lab.solution / ANSWERS, lab.folder / PACKED
    try:
        content = unpacked(beside.read_bytes()) if beside.is_file() else path.read_bytes()
        found = msgspec.toml.decode(content, type=dict[str, Answer])
    except FileNotFoundError:
        raise CheckError(f"{path} is missing: it has the correct answers to the questions in lab.toml.") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CheckError(f"{path}: {error}") from None
    asked = [one.id for one in lab.questions]
    if sorted(asked) != sorted(found):
        there = ", ".join(sorted(found)) or "none"
        raise CheckError(f"{path} has answers to {there}; the questions in lab.toml are {', '.join(asked)}.")
    return found


def packed(content: bytes) -> bytes:
    """Compress a file so that reading or searching a folder does not show it. It is no secret."""
    return base64.b85encode(zlib.compress(content, 9))


def unpacked(content: bytes) -> bytes:
    """The inverse of `packed`. Raises ValueError, zlib.error."""
    return zlib.decompress(base64.b85decode(content.strip()))


def refusal(question: Question, correct: Answer, written: Value) -> str | None:
    """Why what was written is not the answer; None if it is correct."""
    if _key(question, written) is None:
        return f"You wrote `{_shown(written)}`, but {_format_of(question)}."
    if any(_equal(question, correct, written, one) for one in (correct.value, *correct.also)):
        return None
    for near, sentence in correct.wrong.items():
        if _equal(question, correct, written, near):
            return f"You wrote `{_shown(written)}`. {sentence}"
    return f"You wrote `{_shown(written)}`, which is not what the measurement gives. {question.measure}"


def reason(results: tuple[CheckResult, ...]) -> str | None:
    """Why correct code does not pass yet; None if every answer is correct."""
    failed = sum(one.outcome != "passed" for one in results)
    if not failed:
        return None
    noun, verb = "answer" if len(results) == 1 else "answers", "is" if failed == 1 else "are"
    return f"The code passes, but {failed} of {len(results)} {noun} in {ANSWERS} {verb} missing or wrong."


def _judged(question: Question, correct: Answer, written: Value, unknown: str) -> CheckResult:
    if isinstance(written, str) and not _bare(written):
        how = f'Not answered yet. {question.measure} Then write `{question.id} = "…"` into answers.toml.{unknown}'
        return _result(question, "failed", how)
    why = refusal(question, correct, written)
    return _result(question, "passed" if why is None else "failed", why or "", written)


def _result(question: Question, outcome: Outcome, message: str, written: Value | None = None) -> CheckResult:
    return CheckResult(
        question.id,
        question.text,
        "answer",
        outcome,
        message,
        measured=written,
        property=_sentence(_format_of(question)),
        instrument=question.measure,
    )


def _written(lab: Lab, source: Path | str | Mapping[str, str | bytes]) -> tuple[dict[str, Value], str]:
    """The learner's answers, and a sentence about keys that are no question's id. Raises SubmissionFileError."""
    try:
        text = read_text(ANSWERS, source)
    except MissingFileError:
        how = f"`lab start {lab.id}` adds it and changes none of your files"
        raise MissingFileError(f"Not answered yet: {ANSWERS} is missing. {how}.") from None
    if len(text) > LARGEST:
        raise SubmissionFileError(f"{ANSWERS} is longer than {LARGEST} characters, but an answer is one line.")
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        example = lab.questions[0].id
        what = " ".join(str(error).split()) or type(error).__name__
        raise SubmissionFileError(
            f'{ANSWERS} is not valid TOML: {what}. Each answer is one line with quotes, such as `{example} = "…"`.'
        ) from None
    asked = [one.id for one in lab.questions]
    extra = [_shown(key) for key in found if key not in asked]
    unknown = f" The file has `{extra[0]}`, which is not the name of a question." if extra else ""
    return {key: _plain(value) for key, value in found.items()}, unknown


def _plain(value: object) -> Value:
    """A value of a TOML file as one that can be shown, however long its digits are."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value.bit_length() <= 64 else hex(value)
    return value if isinstance(value, (str, float)) else f"a {type(value).__name__}"


def _equal(question: Question, correct: Answer, written: Value, wanted: Value) -> bool:
    mine, other = _key(question, written), _key(question, wanted)
    if isinstance(mine, float) and isinstance(other, float):
        return abs(mine - other) <= correct.tolerance * abs(other)
    return mine == other


def _key(question: Question, written: Value) -> str | float | None:
    """What is compared: a number, or a text without differences that do not matter; None if it has the wrong form."""
    if question.form == "number":
        return _number(written, question.unit)
    text = _bare(str(written)).casefold()
    if question.form == "choice" and text not in [_bare(one).casefold() for one in question.choices]:
        return None
    return text.removeprefix("policy.")


def _number(written: Value, unit: str) -> float | None:
    text = _bare(str(written)[:_LONGEST_SHOWN])
    try:
        found = float(_bare(text.removesuffix(unit)).replace("_", ""))
    except ValueError:
        return None
    return found if abs(found) < float("inf") else None


def _bare(text: str) -> str:
    """The text without quotes and with single spaces."""
    return " ".join(text.strip().strip("`'\"").split())


def _shown(written: Value) -> str:
    return shorten(clean(_bare(str(written)[: 4 * _LONGEST_SHOWN])), _LONGEST_SHOWN).replace("`", "'")


def _format_of(question: Question) -> str:
    if question.form == "choice":
        return f"the answer is one of: {', '.join(question.choices)}"
    hint = question.hint or "a number"
    if not question.unit or question.unit in hint:
        return f"the answer is {hint}"
    return f"the answer is {hint}, in {question.unit}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
