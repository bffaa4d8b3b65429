"""`lab next`: what to do next follows from what labs build on and from what was hard, and the reason says which."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from labs.grading import catalog
from labs.grading.catalog import Lab, load
from labs.learner import progress
from labs.learner.next_lab import Suggestion, next_lab
from labs.learner.progress import Change, Progress
from labs.learner.workspace import Workspace

LabCommand = Callable[..., tuple[int, str, str]]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SHIPPED = load(next(Path(catalog.__file__).parents[1].glob("lab41_*")))


def a_lab(number: str, *before: str, chapter: str = "shapes", stars: int = 1) -> Lab:
    changed = {"id": number, "prerequisites": before, "chapter": chapter, "difficulty": stars, "minutes": 20}
    return msgspec.structs.replace(SHIPPED, **changed)


FIRST, SECOND, THIRD = a_lab("01"), a_lab("02", "01"), a_lab("03", "02", stars=2)
OTHER, HARDER = a_lab("11", chapter="gradients"), a_lab("12", chapter="gradients", stars=3)
LABS = [FIRST, SECOND, THIRD, OTHER, HARDER]


def after(*changes: Change) -> Progress:
    now = Progress()
    for change in changes:
        now = change(now)
    return now


def passed(number: str, at: int = 0, *, refused: int = 0, hints: int = 0, minutes: int = 10) -> list[Change]:
    """A lab that was started `at` minutes after noon, and passed."""
    begin = NOON + timedelta(minutes=at)
    return [
        progress.started(number, begin),
        *[progress.graded(number, False, begin)] * refused,
        *([progress.hinted(number, hints, begin)] if hints else []),
        progress.graded(number, True, begin + timedelta(minutes=minutes)),
    ]


def told(suggestion: Suggestion | None) -> tuple[str, str, str]:
    assert suggestion is not None
    return suggestion.lab.id, suggestion.command, suggestion.why


def test_without_progress_it_is_the_easiest_lab_that_builds_on_none() -> None:
    assert told(next_lab(LABS, Progress())) == ("01", "start", "needs no other lab first")
    assert told(next_lab(LABS[::-1], Progress()))[0] == "11"


def test_a_lab_waits_for_what_it_builds_on() -> None:
    assert told(next_lab([SECOND, FIRST], Progress()))[0] == "01"
    now = after(*passed("01"))
    assert told(next_lab(LABS, now)) == ("02", "start", "builds on lab 01, which you passed")


def test_a_lab_in_progress_comes_first_and_of_two_the_later_one() -> None:
    now = after(progress.started("11", NOON), progress.started("01", NOON + timedelta(hours=1)))
    assert told(next_lab(LABS, now)) == ("01", "grade", "in progress")


def test_a_lab_refused_often_leads_to_what_it_builds_on() -> None:
    stuck = [progress.started("03", NOON), *[progress.graded("03", False, NOON)] * 3]
    assert told(next_lab(LABS, after(*stuck))) == ("01", "start", "lab 03 builds on it, and was refused 3 times")
    assert told(next_lab(LABS, after(*stuck[:-1])))[0] == "03"
    done = after(*passed("01"), *passed("02"), *stuck)
    assert told(next_lab(LABS, done)) == ("03", "grade", "in progress")


@pytest.mark.parametrize(
    ("hard", "reason"),
    [
        (passed("12", refused=3), "because lab 12 was refused 3 times"),
        (passed("12", hints=2), "because lab 12 took 2 hints"),
        (passed("12", minutes=60), "because lab 12 took 60 minutes, not 20"),
        ([progress.gave_up("12", NOON)], "because you gave up lab 12"),
    ],
)
def test_after_a_hard_lab_comes_one_of_its_chapter(hard: list[Change], reason: str) -> None:
    assert told(next_lab(LABS, after(*hard))) == ("11", "start", f"more of the chapter gradients, {reason}")


@pytest.mark.parametrize("easy", [{"refused": 2}, {"hints": 1}, {"minutes": 59}, {"minutes": 24 * 60}])
def test_what_was_not_hard_changes_nothing(easy: dict[str, int]) -> None:
    assert told(next_lab(LABS, after(*passed("12", **easy))))[0] == "01"


def test_a_hard_lab_is_not_followed_by_a_harder_one() -> None:
    assert told(next_lab(LABS, after(*passed("11", hints=3))))[0] == "01"


def test_a_later_lab_of_the_chapter_that_was_not_hard_ends_the_practice() -> None:
    more = [*LABS, a_lab("13", chapter="gradients")]
    now = after(*passed("12", hints=3), *passed("11", at=60))
    assert told(next_lab(more, now))[0] == "01"
    before = after(*passed("11"), *passed("12", at=60, hints=3))
    assert told(next_lab(more, before))[0] == "13"


def test_a_path_is_followed_in_its_order() -> None:
    assert told(next_lab(LABS, Progress(), [HARDER, FIRST])) == ("12", "start", "needs no other lab first")
    assert next_lab(LABS, after(*passed("01")), [FIRST]) is None


def test_a_path_leads_to_what_its_labs_build_on_elsewhere() -> None:
    assert told(next_lab(LABS, Progress(), [THIRD])) == ("01", "start", "lab 03 builds on it")


def test_labs_that_build_on_each_other_are_proposed_all_the_same() -> None:
    circle = [a_lab("01", "02"), a_lab("02", "01")]
    assert told(next_lab(circle, Progress()))[0] == "01"


def test_a_prerequisite_that_is_not_there_is_ignored() -> None:
    assert told(next_lab([SECOND], Progress()))[0] == "02"


def test_next_prints_the_lab_the_command_and_the_reason(lab_command: LabCommand) -> None:
    code, out, err = lab_command("next")
    assert (code, err) == (0, "")
    assert "The arm that overshoots" in out
    assert "lab start 03  needs no other lab first" in out
    lab_command("start", "03")
    assert "lab grade 03  in progress" in lab_command("next")[1]


def test_next_as_json(lab_command: LabCommand) -> None:
    code, out, err = lab_command("next", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "schema": 1,
        "path": None,
        "lab": {"id": "03", "slug": "swapped_order", "title": "The arm that overshoots", "minutes": 10},
        "command": "lab start 03",
        "why": "needs no other lab first",
    }


def test_after_the_last_lab_there_is_none(lab_command: LabCommand, in_workspace: Workspace) -> None:
    progress.record(in_workspace, progress.graded("03", True, NOON))
    assert "Every lab is done." in lab_command("next")[1]
    document = json.loads(lab_command("next", "--json")[1])
    assert (document["lab"], document["command"], document["why"]) == (None, None, None)


def test_the_reason_is_in_korean(lab_command: LabCommand) -> None:
    assert "선행 랩이 없습니다" in lab_command("--lang", "ko", "next")[1]
    assert "needs no other lab first" in lab_command("--lang", "ko", "next", "--json")[1]
