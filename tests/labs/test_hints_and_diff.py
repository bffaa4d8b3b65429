"""There are three hints, shown in order; a diff counts the changed lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.grading.catalog import Lab
from labs.learner.diff import changed_lines, diff_from_starter
from labs.learner.hints import HintsError, hints, parse
from labs.learner.workspace import Workspace

Run = Callable[..., tuple[int, str, str]]
THREE = "## 1 Where\n\nhere\n\n## 2 What\n\nthis\n\n## 3 Why\n\nso\n"


def test_three_hints_are_read_with_their_titles(lab: Lab) -> None:
    assert [(hint.level, hint.title) for hint in hints(lab)] == [
        (1, "Where to look"),
        (2, "What to measure"),
        (3, "What is wrong"),
    ]


@pytest.mark.parametrize(
    ("markdown", "said"),
    [
        ("", "found: none"),
        (THREE.replace("## 3 Why\n\nso\n", ""), "found: 1, 2"),
        (THREE + "## 4 More\n\nmore\n", "found: 1, 2, 3, 4"),
        (THREE.replace("## 2", "## 3"), "found: 1, 3, 3"),
        (THREE.replace("this", ""), "hint 2 has no text"),
    ],
)
def test_anything_but_three_hints_is_refused(markdown: str, said: str) -> None:
    with pytest.raises(HintsError, match=said):
        parse(markdown, "hints.md")


def test_hints_come_one_at_a_time_and_the_last_one_stays(lab_command: Run) -> None:
    lab_command("start", "03")
    shown = [lab_command("hint", "03")[1] for _ in range(4)]
    assert [f"hint {level} of 3" in text for level, text in zip((1, 2, 3, 3), shown, strict=True)] == [True] * 4


def test_code_keeps_its_marks_where_it_has_no_colour(lab_command: Run, in_workspace: Workspace, lab: Lab) -> None:
    """In a pipe, and with NO_COLOR, nothing else would set it apart from the sentence."""
    lab_command("start", "03")
    text = "The line `if len(own) > 0` decides.\n\n```python\nx = `y`\n```"
    (lab.folder / "hints.md").write_text(THREE.replace("\n\nhere", f"\n\n{text}"))
    printed = lab_command("hint", "03")[1]
    assert "The line `if len(own) > 0` decides." in " ".join(printed.split())
    assert "```" not in printed


def test_a_hint_cannot_be_skipped_to(lab_command: Run) -> None:
    lab_command("start", "03")
    code, out, err = lab_command("hint", "03", "--level", "3")
    assert (code, out) == (2, "")
    assert "Hint 3 comes after hint 1" in err


def test_a_hint_that_was_read_can_be_read_again_without_counting(lab_command: Run) -> None:
    lab_command("start", "03")
    lab_command("hint", "03")
    lab_command("hint", "03")
    assert "hint 1 of 3" in lab_command("hint", "03", "--level", "1")[1]
    assert '"hints": 2' in lab_command("progress", "--json")[1]


lines = st.lists(st.sampled_from(["a", "b", "-- c", "++ d", ""]), max_size=8)


@given(before=lines, after=lines)
def test_a_diff_is_empty_exactly_when_nothing_changed(
    before: list[str], after: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("diff")
    stub = _lab_with(root, "\n".join(before))
    (root / "mine").mkdir()
    (root / "mine" / "policy.py").write_text("\n".join(after))
    same = "\n".join(before).splitlines() == "\n".join(after).splitlines()
    assert (diff_from_starter(stub, root / "mine", "mine") == []) is same
    assert (changed_lines(stub, root / "mine") == 0) is same


def test_an_altered_line_counts_once(tmp_path: Path) -> None:
    stub = _lab_with(tmp_path, "a\n-- b\nc\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "policy.py").write_text("a\n++ b\nc\nd\ne\n")
    assert changed_lines(stub, tmp_path / "mine") == 3


def _lab_with(root: Path, starter: str) -> Lab:
    from types import SimpleNamespace

    (root / "starter").mkdir()
    (root / "starter" / "policy.py").write_text(starter)
    return SimpleNamespace(editable=("policy.py",), folder=root / "starter")  # type: ignore[return-value]
