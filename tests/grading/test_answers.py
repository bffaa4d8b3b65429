"""The questions of a lab: what counts as the answer, what a learner is told, and what a grade makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from labs.grading import CheckError, CheckResult, ForkServer, catalog, feedback_steps, grade, gradescope, junit
from labs.grading.answers import ANSWERS, LARGEST, Answer, blank, check_answers, refusal
from labs.grading.catalog import Lab, Question

NAME = Question(
    id="first_nan",
    text="Which module is the first with an output that is not finite?",
    measure="Register a forward hook on every module.",
    form="name",
    hint="a module path such as `towers.vision.layers.0`",
)
NUMBER = Question(id="held", text="How much does a step hold?", measure="Count the bytes.", form="number", unit="bytes")
CHOICE = Question(
    id="where",
    text="Where is it?",
    measure="Compare both.",
    form="choice",
    choices=("the loss", "the data", "the optimizer"),
)
CORRECT = """
[first_nan]
value = "towers.vision.layers.2"
also = ["vision.layers.2"]
wrong = {"towers.vision.layers.7" = "That is the last one that shows it; modules before it show it too."}
[held]
value = 1536
tolerance = 0.01
wrong = {"6144" = "That counts the elements as 64-bit numbers."}
[where]
value = "the data"
"""
RIGHT = 'first_nan = "towers.vision.layers.2"\nheld = 1_536\nwhere = "the data"\n'


@pytest.fixture
def asked(toy_with: Callable[..., Lab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The toy lab with three questions."""
    monkeypatch.setattr(catalog, "SOLUTIONS_ROOT", tmp_path)
    keys = ("id", "text", "measure", "form", "hint", "unit", "choices")
    lab = toy_with(questions=[{key: getattr(one, key) for key in keys} for one in (NAME, NUMBER, CHOICE)])
    lab.solution.mkdir()
    (lab.solution / ANSWERS).write_text(CORRECT)
    return lab


def told(lab: Lab, text: str) -> dict[str, CheckResult]:
    return {one.id: one for one in check_answers(lab, {ANSWERS: text})}


@pytest.mark.parametrize(
    "written",
    [
        '"towers.vision.layers.2"',
        '"  towers.vision.layers.2 "',
        "'`towers.vision.layers.2`'",
        '"policy.towers.vision.layers.2"',
        '"Towers.Vision.Layers.2"',
        '"""\ntowers.vision.layers.2\n"""',
        '"vision.layers.2"',
    ],
)
def test_spelling_that_does_not_matter_is_accepted_in_a_name(asked: Lab, written: str) -> None:
    assert told(asked, f"first_nan = {written}\n")["first_nan"].outcome == "passed"


@pytest.mark.parametrize(
    "written", ["1536", "1_536", '"1536"', '"1_536"', '"1536 bytes"', "1536.0", "1.536e3", "1550", "0x600"]
)
def test_a_number_may_be_written_in_any_way_and_within_its_tolerance(asked: Lab, written: str) -> None:
    assert told(asked, f"held = {written}\n")["held"].outcome == "passed"


@pytest.mark.parametrize(
    "written", ["1560", "-1536", "0", '"1536 KiB"', '"many"', "true", "nan", "inf", "[1536]", "1e999"]
)
def test_another_number_or_none_is_refused(asked: Lab, written: str) -> None:
    found = told(asked, f"held = {written}\n")["held"]
    assert found.outcome == "failed"
    assert "You wrote `" in found.message
    assert "1536" not in found.message.replace(found.message.split("`")[1], "")


def test_a_choice_is_one_of_those_that_were_offered(asked: Lab) -> None:
    assert told(asked, 'where = "The data"')["where"].outcome == "passed"
    assert told(asked, 'where = "the loss"')["where"].message == (
        "You wrote `the loss`, which is not what the measurement gives. Compare both."
    )
    assert "one of: the loss, the data, the optimizer" in told(asked, 'where = "the model"')["where"].message


def test_a_listed_mistake_gets_its_sentence(asked: Lab) -> None:
    found = told(asked, 'first_nan = "policy.towers.vision.layers.7"\nheld = 6150\n')
    assert found["first_nan"].message.endswith("That is the last one that shows it; modules before it show it too.")
    assert found["held"].message == "You wrote `6150`. That counts the elements as 64-bit numbers."


def test_the_blank_file_asks_every_question_and_answers_none(asked: Lab) -> None:
    text = blank(asked)
    for line in (f"# {NAME.text}", f"# {NUMBER.text}", 'held = ""', "# The answer is a number, in bytes."):
        assert line in text.splitlines()
    found = told(asked, text)
    assert [one.outcome for one in found.values()] == ["failed"] * 3
    assert found["held"].message == ('Not answered yet. Count the bytes. Then write `held = "…"` into answers.toml.')


def test_a_unit_that_the_hint_names_is_not_repeated(asked: Lab) -> None:
    (number,) = [one for one in asked.questions if one.form == "number"]
    hinted = msgspec.structs.replace(number, hint="a number of bytes below 9000", unit="bytes")
    text = blank(msgspec.structs.replace(asked, questions=(hinted,)))
    assert "# The answer is a number of bytes below 9000." in text.splitlines()


def test_a_misspelt_key_is_named(asked: Lab) -> None:
    assert "The file has `frist_nan`" in told(asked, 'frist_nan = "x"\n')["first_nan"].message


def test_a_missing_file_says_how_to_get_it_and_is_one_problem(asked: Lab, tmp_path: Path) -> None:
    messages = {one.message for one in check_answers(asked, tmp_path)}
    assert messages == {
        "Not answered yet: answers.toml is missing. `lab start 90` adds it and changes none of your files."
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# one\nfirst_nan = towers.vision\n", "line 2"),
        ("first_nan = '''", "not valid TOML"),
        ("a = " + "[" * 9000, "not valid TOML"),
        ("held = " + "9" * 9000, "not valid TOML"),
        ("#" * (LARGEST + 1), "longer than"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_explained(asked: Lab, text: str | bytes, said: str) -> None:
    found = check_answers(asked, {ANSWERS: text})
    assert [one.outcome for one in found] == ["failed"] * 3
    assert all(said in one.message for one in found)


@pytest.mark.parametrize(
    "value", ["0x" + "f" * 9000, "[0x" + "f" * 9000 + "]", '"\\u001b[2J✓ passed"', "{a = 1}", "2026-01-01"]
)
def test_whatever_is_written_is_quoted_safely(asked: Lab, value: str) -> None:
    for key in ("first_nan", "held", "where"):
        found = told(asked, f"{key} = {value}\n")[key]
        assert found.outcome == "failed"
        assert len(found.message) < 400
        assert "\x1b" not in found.message
        assert "✓" not in found.message


def test_a_link_is_not_followed(asked: Lab, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ANSWERS).symlink_to(asked.solution / ANSWERS)
    assert all("is a link" in one.message for one in check_answers(asked, tmp_path / "mine"))


@pytest.mark.parametrize("text", [None, "nonsense", "[held]\nvalue = 1\n", CORRECT + "[more]\nvalue = 1\n"])
def test_correct_answers_that_do_not_belong_to_the_questions_are_the_graders_fault(
    asked: Lab, text: str | None, solution: dict[str, str]
) -> None:
    (asked.solution / ANSWERS).unlink()
    if text is not None:
        (asked.solution / ANSWERS).write_text(text)
    with pytest.raises(CheckError, match=r"answers\.toml"):
        check_answers(asked, {ANSWERS: RIGHT})
    assert grade(asked, solution | {ANSWERS: RIGHT}).verdict == "error"


def test_a_number_of_zero_has_no_tolerance() -> None:
    assert refusal(NUMBER, Answer(0, tolerance=0.5), 0) is None
    assert refusal(NUMBER, Answer(0, tolerance=0.5), 1e-9) is not None


@pytest.mark.slow
def test_a_pass_needs_every_answer(asked: Lab, solution: dict[str, str], server: ForkServer) -> None:
    seen: list[str] = []
    full = grade(asked, solution | {ANSWERS: RIGHT}, server=server, on_check=lambda one: seen.append(one.id))
    assert (full.verdict, full.reason) == ("passed", None)
    assert [one.kind for one in full.checks[-4:]] == ["outcome", "answer", "answer", "answer"]
    assert seen == [one.id for one in full.checks]

    part = grade(asked, solution | {ANSWERS: RIGHT.replace("1_536", "7")}, server=server)
    assert (part.verdict, part.reason) == (
        "failed",
        "The code passes, but 1 of 3 answers in answers.toml is missing or wrong.",
    )
    assert [(step.label, step.text) for step in feedback_steps(part, asked)] == [
        ("Answer", "You wrote `7`, which is not what the measurement gives. Count the bytes."),
        ("Stuck?", "lab hint 90"),
    ]
    assert gradescope([part])["score"] == 0
    assert 'classname="lab90.answer" name="held"' in junit([part])
    assert part.to_json()["checks"][-2] | {"message": ""} == {
        "id": "held",
        "title": NUMBER.text,
        "kind": "answer",
        "outcome": "failed",
        "message": "",
        "measured": 7,
        "expected": None,
    }


@pytest.mark.slow
def test_answers_are_shown_beside_failed_code_and_left_out_where_code_alone_is_graded(
    asked: Lab, starter: dict[str, str], solution: dict[str, str], server: ForkServer
) -> None:
    found = grade(asked, starter | {ANSWERS: 'held = "8"\n'}, server=server)
    assert found.reason is not None
    assert "checks failed" in found.reason
    steps = feedback_steps(found, asked)
    assert steps[0].label == "Symptom"
    assert [step.text.split(".")[0] for step in steps if step.label == "Answer"] == [
        "Not answered yet",
        "You wrote `8`, which is not what the measurement gives",
        "Not answered yet",
    ]
    alone = grade(asked, solution, server=server, answers=False)
    assert (alone.verdict, {one.kind for one in alone.checks}) == ("passed", {"behaviour", "invariant", "outcome"})
    unread = grade(asked, {"policy.py": "def", ANSWERS: RIGHT}, server=server)
    assert {one.outcome for one in unread.checks} == {"not_run"}
    assert (
        len([step for step in feedback_steps(grade(asked, starter, server=server), asked) if step.label == "Answer"])
        == 1
    )
