"""Text from a submission cannot act on a terminal, hide, reorder a line or draw a check mark, wherever it is shown."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.cli.failures import explain
from labs.grading import CheckResult, Grade, SubmissionRaisedError, SymptomRun, gradescope, junit
from labs.grading.submission_text import LONGEST, MOST_LINES, OutputCleaner, clean, clean_data, shorten

ANY_TEXT = st.text(st.characters(), max_size=80)
"""Lone surrogates, private and unassigned characters included."""
TRICKS = {
    "clears the screen": "\x1b[2J\x1b[H",
    "sets the title": "\x1b]0;passed\x07",
    "C1 escape": "\x9b31m",
    "goes back": "a\b\b\b",
    "carriage return": "failed\rpassed",
    "vertical tab and form feed": "\x0b\x0c",
    "next line": "\x85",
    "right to left": "\u202edessap",
    "isolates": "\u2066\u2069",
    "marks of direction": "\u200e\u200f\u061c",
    "zero width": "\u200b\u200c\u200d\u2060\ufeff",
    "line separators": "\u2028\u2029",
    "soft hyphen": "\u00ad",
    "variation selectors": "\u2713\ufe0e\ufe0f\U000e0100",
    "tags": "\U000e0041",
    "Hangul fillers": "\u115f\u3164\uffa0",
    "blank Braille": "\u2800",
    "interlinear annotations": "\ufff9\ufffb",
    "a stack of marks": "o" + "\u0301" * 50,
    "an enclosing mark": "x\u20dd",
    "half a surrogate pair": "\ud83d",
    "private use": "\ue000",
    "not a character": "\ufffe\uffff",
    "NUL": "\x00",
}
FORBIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Me"}


def is_safe(text: str) -> bool:
    """Whether nothing in the text could deceive a reader."""
    return not any(
        (one != "\n" and unicodedata.category(one) in FORBIDDEN_CATEGORIES)
        or "CHECK MARK" in unicodedata.name(one, "")
        or "VARIATION SELECTOR" in unicodedata.name(one, "")
        or unicodedata.name(one, "").endswith(("WITH CHECK", "WITH BOLD CHECK", "FILLER"))
        for one in text
    )


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS)
def test_a_trick_is_made_visible(trick: str) -> None:
    assert not is_safe(trick) or trick.count("\u0301") > 2 or "\u2800" in trick
    shown = clean(f"before{trick}after")
    assert is_safe(shown)
    assert shown.count("\u0301") <= 2
    assert "\u2800" not in shown
    assert shown.startswith("before")
    assert shown.endswith("after")


@given(ANY_TEXT)
def test_any_text_is_safe_and_stays_as_it_is_the_second_time(text: str) -> None:
    shown = clean(text)
    assert is_safe(shown)
    assert clean(shown) == shown
    shown.encode("utf-8")


@given(st.lists(ANY_TEXT, max_size=4))
def test_printed_pieces_are_safe(pieces: list[str]) -> None:
    cleaner = OutputCleaner()
    assert is_safe("".join(cleaner.feed(piece) for piece in pieces))


def test_a_line_end_that_comes_in_two_pieces_is_one_line_end() -> None:
    cleaner = OutputCleaner()
    assert cleaner.feed("one\r") + cleaner.feed("\ntwo\rthree\n") == "one\ntwo\nthree\n"


@pytest.mark.parametrize(
    "text", ["héllo", "안녕하세요", "漢字かな", "Ω ≤ 3.5 µm ± 2 %", "🙂", "a\u0301", "กี่", "line\nline"]
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


def test_every_check_mark_there_is_belongs_to_the_grader() -> None:
    marks = [chr(code) for code in range(0x110000) if "CHECK MARK" in unicodedata.name(chr(code), "")]
    assert len(marks) >= 6
    assert not set(clean("".join(marks))) & set(marks)
    assert clean("✓ passed") == "\\u2713 passed"
    assert clean("√ ☑ ✅") == "\\u221a \\u2611 \\u2705"


def test_text_is_limited_in_length_and_in_lines() -> None:
    assert len(clean("word " * 10_000)) <= LONGEST
    lines = clean("x\n" * 1000).splitlines()
    assert len(lines) == MOST_LINES
    assert lines[-1] == f"… ({1000 + 1 - MOST_LINES + 1} more lines)"


@given(st.text(st.sampled_from("ab \n"), max_size=60), st.integers(4, 40))
def test_a_short_form_is_the_beginning_and_no_longer_than_it_may_be(text: str, longest: int) -> None:
    short = shorten(text, longest)
    assert len(short) <= longest
    assert short == text or text.startswith(short.removesuffix("…").rstrip())
    assert shorten(short, longest) == short


@pytest.mark.parametrize(
    ("text", "short"), [("one two three", "one two …"), ("0.123456789012", "0.1234567 …"), ("short", "short")]
)
def test_a_word_is_cut_only_if_there_is_no_space(text: str, short: str) -> None:
    assert shorten(text, 11) == short


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_data_stays_data_and_every_text_in_it_is_safe(value: Any) -> None:
    shown = json.dumps(clean_data(value), ensure_ascii=False, allow_nan=False)
    assert is_safe(shown)


@given(ANY_TEXT, JSON)
def test_whatever_the_grader_returns_is_clean_when_it_is_made(text: str, value: Any) -> None:
    check = CheckResult("id", "title", "behaviour", "failed", text, value, value)
    grade = Grade("03", "slug", "failed", text, 1.0, 1, None, (check,))
    failure = explain(SubmissionRaisedError("loss", text, text))
    assert failure is not None
    for shown in (
        json.dumps(grade.to_json(), ensure_ascii=False, allow_nan=False),
        junit([grade]),
        json.dumps(gradescope([grade]), ensure_ascii=False),
        SymptomRun(text, "").ending or "",
        failure.sentence,
    ):
        assert is_safe(shown)


def test_a_long_message_keeps_the_place_where_it_was_raised() -> None:
    from labs.grading.errors import TraceLine

    raised = SubmissionRaisedError("loss", "ValueError", "word " * 3000, (TraceLine("policy.py", 7, "loss", "f(x)"),))
    assert str(raised).endswith("(policy.py, line 7: f(x))")


def test_a_reason_of_several_lines_cannot_add_a_line_to_a_gradescope_report() -> None:
    check = CheckResult("id", "title", "behaviour", "failed", "wrong\n[passed] everything")
    grade = Grade("03", "slug", "failed", "no\n[passed] everything", 1.0, 1, None, (check,))
    [test] = gradescope([grade])["tests"]
    assert [line for line in test["output"].splitlines() if line.startswith("[")] == ["[failed] title: wrong"]
