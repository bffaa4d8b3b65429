"""A lab with questions, as a learner sees it: `answers.toml` is copied, graded, kept and shown like the other files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from msgspec.structs import replace

from child_processes import HANG_S, started
from labs.authoring.content_hash import content_of
from labs.authoring.lint_answers import lint_answers
from labs.grading import catalog
from labs.grading.answers import ANSWERS, blank
from labs.grading.catalog import Lab
from labs.learner import progress
from labs.learner.workspace import Workspace

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

Run = Callable[..., tuple[int, str, str]]
QUESTION = """
[[questions]]
id = "term"
text = "Which term of the action is scaled twice?"
measure = "Print both terms before they are added."
form = "name"
hint = "the name of an argument, such as `std`"
"""
CORRECT = """
[term]
value = "mean"

[term.wrong]
action = "The action is scaled once, as it should be."
"""


@pytest.fixture
def asked(lab: Lab) -> Lab:
    """The fixture lab with one question."""
    return with_question(lab, QUESTION, CORRECT)


def with_question(lab: Lab, question: str, correct: str | None) -> Lab:
    path = lab.folder / "lab.toml"
    path.write_text(path.read_text() + question)
    if correct is not None:
        (lab.solution / ANSWERS).write_text(correct)
    lesson = lab.folder.parents[1] / "docs" / f"{lab.lesson}.md"
    lesson.write_text(lesson.read_text().replace("## Measure\n", "## Measure\n\nWrite it into `answers.toml`.\n"))
    catalog.all_labs.cache_clear()
    return catalog.find(lab.id)


def answer(workspace: Workspace, lab: Lab, text: str) -> None:
    (workspace.attempt(lab) / ANSWERS).write_text(f'term = "{text}"\n')


def test_start_copies_a_blank_file_and_says_where_it_is(lab_command: Run, in_workspace: Workspace, asked: Lab) -> None:
    _, out, _ = lab_command("start", "03")
    assert f"answer  {in_workspace.attempt(asked) / ANSWERS}" in out
    assert (in_workspace.attempt(asked) / ANSWERS).read_text() == blank(asked)


def test_start_adds_the_file_to_an_older_attempt_and_changes_nothing_else(workspace: Workspace, lab: Lab) -> None:
    workspace.start(lab)
    (workspace.attempt(lab) / "policy.py").write_text("mine = 1\n")
    assert not (workspace.attempt(lab) / ANSWERS).exists()
    asked = with_question(lab, QUESTION, CORRECT)
    assert workspace.started_attempt(asked) == workspace.attempt(lab)
    assert workspace.start(asked)
    assert (workspace.attempt(asked) / ANSWERS).read_text() == blank(asked)
    assert (workspace.attempt(asked) / "policy.py").read_text() == "mine = 1\n"
    answer(workspace, asked, "mean")
    assert not workspace.start(asked)
    assert "mean" in (workspace.attempt(asked) / ANSWERS).read_text()


def test_reset_keeps_the_answers_and_restores_the_blank_file(workspace: Workspace, asked: Lab) -> None:
    workspace.start(asked)
    answer(workspace, asked, "mean")
    kept = workspace.reset(asked)
    assert "mean" in (kept / ANSWERS).read_text()
    assert (workspace.attempt(asked) / ANSWERS).read_text() == blank(asked)


def test_diff_shows_the_answers_and_solution_shows_the_correct_ones(
    lab_command: Run, in_workspace: Workspace, asked: Lab
) -> None:
    lab_command("start", "03")
    assert "not changed" in lab_command("diff", "03")[1]
    answer(in_workspace, asked, "std")
    out = lab_command("diff", "03")[1]
    assert '+term = "std"' in out
    assert f"starter/{ANSWERS}" in out
    assert "term = 'mean'" in lab_command("solution", "03", "--give-up")[1]
    (in_workspace.attempt(asked) / ANSWERS).unlink()
    assert "not changed" in lab_command("diff", "03")[1]


@pytest.mark.slow
def test_grade_asks_refuses_and_passes(lab_command: Run, in_workspace: Workspace, asked: Lab) -> None:
    lab_command("start", "03")
    fixed = (asked.solution / "policy.py").read_text()
    (in_workspace.attempt(asked) / "policy.py").write_text(fixed)

    code, out, _ = lab_command("grade", "03")
    assert code == 1
    assert "✗ Which term of the action is scaled twice?  answer: not given yet" in out
    assert "✗ fixed, but not answered yet  3 checks · 1 of 1 answer missing or wrong" in out
    assert 'Answer Not answered yet. Print both terms before they are added. Then write `term = "…"`' in " ".join(
        out.split()
    )
    assert progress.read(in_workspace).progress.status("03") == "started"

    answer(in_workspace, asked, "action")
    out = lab_command("grade", "03")[1]
    assert "answer: wrong" in out
    assert "You wrote `action`. The action is scaled once, as it should be." in " ".join(out.split())
    assert "mean" not in out.partition("fixed, but")[2]

    answer(in_workspace, asked, "mean")
    code, out, _ = lab_command("grade", "03")
    assert (code, out.count("✓")) == (0, 5)  # three checks, the answer and the verdict
    assert "3 checks · 1 answer" in out
    assert progress.read(in_workspace).progress.status("03") == "passed"


@pytest.mark.slow
def test_an_older_attempt_is_graded_and_told_how_to_get_the_file(
    lab_command: Run, in_workspace: Workspace, lab: Lab
) -> None:
    lab_command("start", "03")
    with_question(lab, QUESTION, CORRECT)
    code, out, err = lab_command("grade", "03", "--json")
    (only,) = json.loads(out)["labs"]
    assert (code, err) == (1, "")
    assert [check["kind"] for check in only["checks"]] == ["behaviour", "invariant", "outcome", "answer"]
    assert "`lab start 03` adds it and changes none of your files" in only["checks"][-1]["message"]


@pytest.mark.extended
@pytest.mark.slow
def test_several_labs_at_once_check_the_answers_too(lab_command: Run, in_workspace: Workspace, asked: Lab) -> None:
    root = asked.folder.parents[1]
    for part in ("labs", "solutions"):
        copytree(root / part / asked.name, root / part / "lab04_second")
    path = root / "labs" / "lab04_second" / "lab.toml"
    path.write_text(path.read_text().replace('"03"', '"04"').replace('"swapped_order"', '"second"'))
    catalog.all_labs.cache_clear()
    for one in catalog.all_labs():
        in_workspace.start(one)
        (in_workspace.attempt(one) / "policy.py").write_text((one.solution / "policy.py").read_text())
    answer(in_workspace, catalog.find("04"), "mean")
    code, out, _ = lab_command("grade", "--all", "--jobs", "2")
    assert code == 1
    assert "1 of 2 labs passed" in out
    assert "The code passes, but 1 of 1 answer in answers.toml is missing or wrong." in out


def test_a_lab_without_questions_keeps_its_hash_and_answers_count_as_the_labs_own(lab: Lab) -> None:
    plain = content_of(lab)
    asked = with_question(lab, QUESTION, CORRECT)
    before = content_of(asked)
    assert before.lab != plain.lab
    assert before.grader == plain.grader
    reworded = replace(asked, questions=(replace(asked.questions[0], text="Which one is it?", measure="Print both."),))
    assert content_of(reworded) == before
    assert content_of(replace(asked, questions=(replace(asked.questions[0], form="number"),))).lab != before.lab
    (asked.solution / ANSWERS).write_text(CORRECT.replace('"mean"', '"std"'))
    assert content_of(asked).lab != before.lab


def violations(lab: Lab) -> str:
    return "\n".join(one.sentence for one in lint_answers(lab))


def test_complete_questions_have_no_violation(asked: Lab, collection: Path) -> None:
    assert violations(asked) == ""


SPOILED: dict[str, tuple[str, str | None, str]] = {
    "no correct answers": (QUESTION, None, "is missing"),
    "an answer to another question": (
        QUESTION,
        CORRECT.replace("[term]", "[item]").replace("[term.", "[item."),
        "answers to item",
    ),
    "two questions with one id": (QUESTION * 2, CORRECT, "questions in lab.toml are term, term"),
    "no sentence": (QUESTION.replace("twice?", "twice"), CORRECT, "text of the question term is not a sentence"),
    "no measurement": (
        QUESTION.replace("Print both", "both"),
        CORRECT,
        "measure of the question term is not a sentence",
    ),
    "no form of a name": (QUESTION.replace("hint = ", "unit = "), CORRECT, "has no hint"),
    "choices of a name": (QUESTION + 'choices = ["a"]\n', CORRECT, "has choices, but its form is name"),
    "too few choices": (
        QUESTION.replace('"name"', '"choice"') + 'choices = ["mean", "action"]\n',
        CORRECT,
        "fewer than 3 choices",
    ),
    "a correct answer that is no choice": (
        QUESTION.replace('"name"', '"choice"') + 'choices = ["a", "action", "c"]\n',
        CORRECT,
        "'mean' to term is refused",
    ),
    "a mistake that is accepted": (QUESTION, CORRECT.replace("action =", "mean ="), "but it is accepted"),
    "a mistake of another form": (
        QUESTION.replace('"name"', '"number"'),
        CORRECT.replace('"mean"', "1"),
        "does not get its sentence",
    ),
    "a mistake without a sentence": (QUESTION, CORRECT.replace("should be.", "should be"), "is not a sentence"),
    "a sentence with the answer": (QUESTION, CORRECT.replace("The action", "Not the mean: it"), "contains its correct"),
    "a measurement with the answer": (QUESTION.replace("both terms", "mean"), CORRECT, "contains its correct answer"),
    "answers without a question": ("", CORRECT, "has no [[questions]]"),
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_requirement_that_is_not_met_is_named(lab: Lab, spoiled: str) -> None:
    question, correct, said = SPOILED[spoiled]
    assert said in violations(with_question(lab, question, correct))


def test_the_lesson_must_say_where_to_write_the_answer(asked: Lab) -> None:
    lesson = asked.folder.parents[1] / "docs" / f"{asked.lesson}.md"
    lesson.write_text(lesson.read_text().replace("answers.toml", "a file"))
    assert "does not mention answers.toml" in violations(asked)


@pytest.mark.slow
def test_watch_grades_again_when_the_answers_are_saved(
    asked: Lab, in_workspace: Workspace, lab_process: tuple[list[str], dict[str, Any]]
) -> None:
    in_workspace.start(asked)
    (in_workspace.attempt(asked) / "policy.py").write_text((asked.solution / "policy.py").read_text())
    command, options = lab_process
    with started([*command, "watch", "03"], cwd=in_workspace.root, stdout=-1, text=True, **options) as watching:
        assert watching.stdout is not None
        for line in watching.stdout:
            if "waiting for you to save policy.py or answers.toml" in line:
                answer(in_workspace, asked, "mean")
        assert watching.wait(timeout=HANG_S) == 0
