"""What the generator measures before a mystery is shown, and that the checks accept any program that does the same."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from labs.mystery.aspects import ASPECTS
from labs.mystery.aspects import BY_ID as ASPECT
from labs.mystery.compose import Program, compose
from labs.mystery.healthy import Running
from labs.mystery.measured import key_of, measure_seed, verdicts
from labs.mystery.operators import BY_ID as OPERATOR
from labs.mystery.operators import OPERATORS
from labs.mystery.plant import Key, Planted, failing, plant, problems

EXTENDED_DEPENDS_ON = ("debugkit", "labs/*.py", "labs/grading", "labs/mystery", "labs/vla", "tests/mystery")
OTHER_WAYS = {
    "mask": ("(~action_is_pad).float()", "(1 - action_is_pad.float())"),
    "inverse": ("self.train(was_training)", "self.train(mode=bool(was_training))"),
    "pixels": ("image.permute(0, 3, 1, 2)", "image.transpose(1, 3).transpose(2, 3)"),
    "buffers": ("clamp(min=1e-3)", "clamp_min(1e-3)"),
}
"""Lines of every composed policy, and other ways to compute the same."""


@pytest.mark.parametrize("level", [1, 2, 3])
def test_the_first_fair_draw_is_refused_as_planted_and_accepted_without_the_fault(level: int) -> None:
    planted = plant(Key(3, level))
    refused, not_accepted = verdicts(planted)
    assert {one.shows for one in planted.operators} & set(refused)
    assert not not_accepted


def test_a_program_without_a_fault_is_no_mystery() -> None:
    program = compose(Random(1))
    operator = OPERATOR["tower_detached"]
    assert problems(Planted(Key(1), 0, program, (operator,), program.files)) == ["the fault is not seen by gradients"]


def test_a_second_fault_that_is_not_seen_is_no_mystery() -> None:
    program = compose(Random(1))
    seen, unseen = OPERATOR["text_detached"], replace(OPERATOR["tower_detached"], edits=(), shows="combine")
    files = seen.planted(program, program.files)
    assert files is not None
    assert problems(Planted(Key(1), 0, program, (seen, unseen), files)) == ["the fault is not seen by combine"]


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_another_way_to_compute_the_same_is_accepted(way: str) -> None:
    program = compose(Random(2))
    before, after = OTHER_WAYS[way]
    text = program.files["policy.py"]
    assert before in text
    other = Running(program, {**program.files, "policy.py": text.replace(before, after)})
    assert failing(Running(program), other, ASPECTS, f"another way {way}", 1.0) == {}


@pytest.mark.extended
@pytest.mark.parametrize("operator", OPERATORS, ids=[one.id for one in OPERATORS])
def test_every_operator_is_seen_by_its_aspect_in_some_program(operator: object) -> None:
    one = OPERATOR[operator.id]  # type: ignore[attr-defined]
    assert any(_is_seen(program, one) for program in map(compose, map(Random, range(60))))


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(1, 31))
def test_a_seed_is_fair(seed: int) -> None:
    assert measure_seed(key_of(seed))["problems"] == []


def _is_seen(program: Program, operator: object) -> bool:
    one = OPERATOR[operator.id]  # type: ignore[attr-defined]
    files = one.planted(program, program.files)
    if files is None:
        return False
    return bool(failing(Running(program), Running(program, files), [ASPECT[one.shows]], one.id, 5.0))
