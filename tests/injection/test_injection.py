"""Programs and operators work, and the effect of a fault is measured; run.py does this for hundreds of programs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from injection.architectures import compose, kinds
from injection.examine import behaviour, differences, examine, loud
from injection.operators import FAMILIES, operators, place

EXTENDED_DEPENDS_ON = ("debugkit", "tests/injection")


def of_kind(name: str) -> int:
    """The first seed of a kind."""
    return list(kinds()).index(name)


def test_a_seed_decides_the_whole_program() -> None:
    assert compose(7) == compose(7)
    assert compose(7).text != compose(7 + len(kinds())).text


def test_there_are_thirty_kinds_and_twelve_operators_in_each_family() -> None:
    assert len(kinds()) >= 30
    families = [operator.family for operator in operators().values()]
    assert all(families.count(family) >= 12 for family in FAMILIES)


@pytest.mark.extended
@pytest.mark.parametrize(("kind", "name"), [("mlp_regression", "step_forgotten"), ("plain_cnn", "logits_to_nll_loss")])
def test_a_planted_fault_has_an_effect_and_is_found_at_its_place(tmp_path: Path, kind: str, name: str) -> None:
    program, operator, path = compose(of_kind(kind)), operators()[name], tmp_path / "program.py"
    planted = operator.plant(program, random.Random(0))
    assert planted is not None
    assert differences(behaviour(program.text, path), behaviour(planted, path))
    said = loud(examine(planted, path))
    assert any(finding.code in operator.codes for finding in said)
    assert any(operator.is_placed(finding, program.text, planted, str(path)) for finding in said)


def test_two_runs_of_a_program_are_equal(tmp_path: Path) -> None:
    text, path = compose(of_kind("mlp_binary")).text, tmp_path / "program.py"
    assert differences(behaviour(text, path), behaviour(text, path)) == []


def test_an_operator_says_when_it_does_not_apply() -> None:
    assert operators()["no_causal_mask"].plant(compose(of_kind("mlp_binary")), random.Random(0)) is None


def test_the_place_is_the_changed_lines_and_what_they_mention() -> None:
    lines, names, keys = place('a = 1\nb = self.head(batch["x"])\nc = 3', 'a = 1\nb = self.head(batch["y"])\nc = 3')
    assert (lines, names, keys) == ({2}, {"head", "b"}, {"x", "y"})
