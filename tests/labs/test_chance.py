"""Correct fixes on many seeds: what runs, what is recorded, and what ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from labs.authoring.bench import Bench, Refusal
from labs.authoring.chance import AT_ONCE, FIRST_SEED, read_seeds, refusals_by_chance, seeds_of
from labs.authoring.content_hash import SEEDS_RECORD
from labs.authoring.mutation.page import mutation_page
from labs.authoring.variants import alternatives
from labs.authoring.verify_many import OnDemandServer
from labs.grading.catalog import Lab

UNLUCKY = FIRST_SEED + AT_ONCE + 3


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds that were run, in place of grading: UNLUCKY is refused."""
    seen: list[int] = []

    def over_seeds(self: Bench, files: object, seeds: Iterable[int], say: Callable[[str], None]) -> dict[int, Refusal]:
        seen.extend(seeds)
        return {seed: Refusal("test_a", "the loss is 2.") for seed in seeds if seed == UNLUCKY}

    monkeypatch.setattr(Bench, "over_seeds", over_seeds)
    return seen


def run(lab: Lab, seeds: int) -> list[str]:
    return [one.sentence for one in refusals_by_chance(lab, OnDemandServer(), seeds)]


def test_every_correct_fix_runs_on_every_seed_once(lab: Lab, ran: list[int]) -> None:
    correct = 1 + len(list(alternatives(lab)))
    assert run(lab, 7) == []
    assert sorted(ran) == sorted([*range(FIRST_SEED, FIRST_SEED + 7)] * correct)
    ran.clear()
    assert run(lab, 10) == []
    assert set(ran) == set(range(FIRST_SEED + 7, FIRST_SEED + 10))
    ran.clear()
    assert run(lab, 10) == [] == ran
    record = read_seeds(lab)
    assert record is not None
    assert (record.seeds, record.correct) == (10, correct)


def test_a_refusal_is_reported_and_the_groups_before_it_are_kept(lab: Lab, ran: list[int]) -> None:
    (sentence,) = run(lab, 3 * AT_ONCE)
    assert sentence == f"the solution is refused on 1 of {AT_ONCE} seeds; on seed {UNLUCKY}: the loss is 2."
    assert seeds_of(lab) == AT_ONCE
    assert max(ran) < FIRST_SEED + 2 * AT_ONCE


@pytest.mark.usefixtures("ran")
def test_a_run_that_is_cut_off_keeps_its_groups(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(*_: object) -> dict[int, Refusal]:
        raise KeyboardInterrupt

    assert run(lab, AT_ONCE) == []
    monkeypatch.setattr(Bench, "over_seeds", cut_off)
    with pytest.raises(KeyboardInterrupt):
        run(lab, 2 * AT_ONCE)
    assert seeds_of(lab) == AT_ONCE


def test_seeds_run_again_after_the_lab_has_changed(lab: Lab, ran: list[int]) -> None:
    run(lab, 5)
    assert f"| {1 + len(list(alternatives(lab)))} | 5 | 0 |" in mutation_page([lab])
    checks = lab.folder / "checks.py"
    checks.write_text(checks.read_text() + "\n\nADDED = 1\n")
    assert seeds_of(lab) == 0
    assert ", changed since |" in mutation_page([lab])
    ran.clear()
    run(lab, 5)
    assert len(ran) == 5 * (1 + len(list(alternatives(lab))))


def test_a_damaged_record_counts_as_none(lab: Lab, ran: list[int]) -> None:
    (lab.solution / SEEDS_RECORD).write_text("{")
    assert seeds_of(lab) == 0
    assert run(lab, 1) == []
    assert seeds_of(lab) == 1
    assert ran
