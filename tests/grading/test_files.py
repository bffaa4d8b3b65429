"""A file that cannot be graded is refused with one sentence, as a failed grade and not as a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from labs.grading import grade
from labs.grading.catalog import Lab
from labs.grading.errors import (
    MissingFileError,
    NotUtf8Error,
    PythonSyntaxError,
    SubmissionFileError,
    SymlinkError,
    TooBigError,
)
from labs.grading.files import LARGEST_FILE_BYTES, check_syntax, read_submission
from labs.grading.submission_text import clean


def _link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("prepare", "error", "says"),
    [
        (lambda path: None, MissingFileError, "is missing"),
        (_link, SymlinkError, "is a link"),
        (lambda path: path.mkdir(), SubmissionFileError, "is not a file"),
        (lambda path: path.write_bytes(b"x = 1\n# \xff"), NotUtf8Error, r"\(line 2\)"),
        (lambda path: path.write_bytes(b"#" * (LARGEST_FILE_BYTES + 1)), TooBigError, "512 KiB"),
        (lambda path: path.write_text("x = 1\ny = (2\n"), PythonSyntaxError, "SyntaxError in policy.py, line 2"),
        (lambda path: path.write_bytes(b"x = 1\0"), PythonSyntaxError, "cannot be parsed|SyntaxError in"),
        (lambda path: path.write_text("(" * 5000), PythonSyntaxError, "cannot be parsed|SyntaxError in"),
    ],
    ids=["missing", "link", "folder", "not-utf8", "too-big", "syntax", "null-byte", "too-nested"],
)
def test_an_unreadable_file_is_one_sentence(
    prepare: Callable[[Path], object], error: type[Exception], says: str, toy: Lab, tmp_path: Path
) -> None:
    prepare(tmp_path / "policy.py")
    with pytest.raises(error, match=says):
        read_submission(toy, tmp_path)


def test_a_syntax_error_points_at_its_place(toy: Lab) -> None:
    with pytest.raises(PythonSyntaxError) as caught:
        read_submission(toy, {"policy.py": "def f():\n    return 1 +* 2\n"})
    sentence, code, caret = str(caught.value).splitlines()
    assert sentence.startswith("SyntaxError in policy.py, line 2")
    assert code[caret.index("^")] == "*"


def test_a_missing_file_is_a_failed_grade_with_no_check_run(toy: Lab, tmp_path: Path) -> None:
    result = grade(toy, tmp_path)
    assert result.verdict == "failed"
    assert str(tmp_path / "policy.py") in (result.reason or "")
    assert [one.outcome for one in result.checks] == ["not_run"] * 3


def test_a_byte_order_mark_is_no_fault(toy: Lab) -> None:
    assert read_submission(toy, {"policy.py": b"\xef\xbb\xbfx = 1\n"}) == {"policy.py": "x = 1\n"}


def test_the_caret_stays_below_its_place_after_characters_that_are_shown_as_escapes() -> None:
    with pytest.raises(PythonSyntaxError) as raised:
        check_syntax("policy.py", "f('\u202e✓', (]\n")
    _, line, caret = clean(str(raised.value)).splitlines()
    assert "\\u202e\\u2713" in line
    assert caret.index("^") == line.index("]")
