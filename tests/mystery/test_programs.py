"""What the generator composes, without running it: it can be repeated, is formatted, and every operator has a place."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from random import Random

import pytest

from labs.grading.catalog import CHAPTERS
from labs.mystery.aspects import BY_ID as ASPECTS
from labs.mystery.compose import DIMENSIONS, compose
from labs.mystery.measured import style_problems
from labs.mystery.names import draw_names
from labs.mystery.operators import MEASUREMENTS, OPERATORS, PLACES, Operator
from labs.mystery.plant import Key, Planted, drawn, operators_for

EXTENDED_DEPENDS_ON = ("debugkit", "labs/*.py", "labs/grading", "labs/mystery", "labs/vla", "tests/mystery")
PROGRAMS = [compose(Random(number)) for number in range(60)]
EACH = pytest.mark.parametrize("operator", OPERATORS, ids=[one.id for one in OPERATORS])


def test_a_key_gives_the_same_program_every_time() -> None:
    key = Key(20261123, level=2)
    assert first_draw(key) == first_draw(key)
    assert first_draw(key).files != first_draw(Key(20261124, level=2)).files


def test_programs_differ_in_at_least_eight_dimensions() -> None:
    seen = {name: {program.forms[name] for program in PROGRAMS} for name in DIMENSIONS}
    assert len([name for name, forms in seen.items() if len(forms) > 1]) >= 8
    assert len({program.files["policy.py"] for program in PROGRAMS}) == len(PROGRAMS)


@pytest.mark.parametrize("number", range(20))
def test_no_name_is_drawn_twice_in_one_program(number: int) -> None:
    names = draw_names(Random(number))
    drawn_names = [name for key, name in names.items() if key not in ("theme", "Task", "robot")]
    assert len(drawn_names) == len(set(drawn_names))


def test_there_are_enough_operators_for_every_chapter_and_level() -> None:
    assert len(OPERATORS) >= 40
    assert len({one.id for one in OPERATORS}) == len(OPERATORS)
    for chapter in CHAPTERS:
        assert operators_for(1, chapter), chapter
        assert len(operators_for(3, chapter)) >= 2, chapter


@EACH
def test_an_operator_names_its_place_and_what_shows_it(operator: Operator) -> None:
    assert operator.place in PLACES
    assert operator.shows in ASPECTS
    assert operator.shows in MEASUREMENTS
    assert operator.symptom.endswith(".")
    assert operator.wrong.endswith(".")


@EACH
def test_an_operator_has_a_place_in_some_programs_and_leaves_them_valid(operator: Operator) -> None:
    planted = [files for program in PROGRAMS if (files := operator.planted(program, program.files)) is not None]
    assert planted
    for files in planted[:3]:
        for text in files.values():
            ast.parse(text)


@pytest.mark.parametrize("seed", range(3))
def test_the_files_are_what_ruff_would_write(seed: int) -> None:
    assert find_spec("ruff"), "ruff is one of the requirements for development"
    assert style_problems(first_draw(Key(seed))) == []


@pytest.mark.extended
@EACH
def test_every_planted_fault_is_what_ruff_would_write(operator: Operator) -> None:
    for program in PROGRAMS:
        files = operator.planted(program, program.files)
        if files is not None:
            assert style_problems(Planted(Key(0), 0, program, (operator,), files)) == []


@pytest.mark.parametrize("name", ["mystery-7", "mystery-20261123-level2", "mystery-7-loop", "mystery-7-level3-data"])
def test_a_name_is_read_back(name: str) -> None:
    key = Key.of_name(name)
    assert key is not None
    assert key.name == name


@pytest.mark.parametrize("name", ["mystery", "mystery-", "mystery-x", "mystery-7-nothing", "mystery-7-level4", "03"])
def test_another_name_is_not_a_key(name: str) -> None:
    assert Key.of_name(name) is None


def first_draw(key: Key) -> Planted:
    """The first draw that has a place for its fault."""
    return next(one for attempt in range(100) if (one := drawn(key, attempt)) is not None)
