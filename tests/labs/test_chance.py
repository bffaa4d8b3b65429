"""Correct fixes on many seeds: what runs, what is recorded, and what ends it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import pytest
from msgspec.structs import replace

from labs.authoring.bench import Bench, Refusal
from labs.authoring.chance import AT_ONCE, FIRST_SEED, read_seeds, refusals_by_chance, seeds_of
from labs.authoring.content_hash import SEEDS_RECORD
from labs.authoring.mutation.page import mutation_page
from labs.authoring.parts import SOLUTION
from labs.authoring.variants import alternatives
from labs.authoring.verify_many import OnDemandServer
from labs.grading.catalog import Lab

UNLUCKY = FIRST_SEED + AT_ONCE + 3


Ran = list[tuple[int, frozenset[str]]]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """The seeds that were run and with which checks, in place of grading: UNLUCKY is refused."""
    seen: Ran = []

    def over_seeds(
        self: Bench, files: object, seeds: Iterable[int], say: Callable[[str], None], *, checks: Collection[str]
    ) -> dict[int, Refusal]:
        seen.extend((seed, frozenset(checks)) for seed in seeds)
        return {seed: Refusal("test_a", "the loss is 2.") for seed in seeds if seed == UNLUCKY}

    monkeypatch.setattr(Bench, "over_seeds", over_seeds)
    return seen


def run(lab: Lab, seeds: int) -> list[str]:
    return [one.sentence for one in refusals_by_chance(lab, OnDemandServer(), seeds)]


def test_every_correct_fix_runs_on_every_seed_once(lab: Lab, ran: Ran) -> None:
    correct = 1 + len(list(alternatives(lab)))
    assert run(lab, 7) == []
    assert sorted(seed for seed, _ in ran) == sorted([*range(FIRST_SEED, FIRST_SEED + 7)] * correct)
    ran.clear()
    assert run(lab, 10) == []
    assert {seed for seed, _ in ran} == set(range(FIRST_SEED + 7, FIRST_SEED + 10))
    ran.clear()
    assert run(lab, 10) == [] == ran
    record = read_seeds(lab)
    assert record is not None
    assert len(record.seeds) == correct
    assert {count for of_fix in record.seeds.values() for count in of_fix.values()} == {10}


def test_a_refusal_is_reported_and_the_groups_before_it_are_kept(lab: Lab, ran: Ran) -> None:
    (sentence,) = run(lab, 3 * AT_ONCE)
    assert sentence == f"the solution is refused on 1 of {AT_ONCE} seeds; on seed {UNLUCKY}: the loss is 2."
    assert seeds_of(lab) == AT_ONCE
    assert max(seed for seed, _ in ran) < FIRST_SEED + 2 * AT_ONCE


@pytest.mark.usefixtures("ran")
def test_a_run_that_is_cut_off_keeps_its_groups(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(*_: object, **__: object) -> dict[int, Refusal]:
        raise KeyboardInterrupt

    assert run(lab, AT_ONCE) == []
    monkeypatch.setattr(Bench, "over_seeds", cut_off)
    with pytest.raises(KeyboardInterrupt):
        run(lab, 2 * AT_ONCE)
    assert seeds_of(lab) == AT_ONCE


def test_everything_runs_again_after_a_change_of_the_settings(lab: Lab, ran: Ran) -> None:
    run(lab, 5)
    correct = 1 + len(list(alternatives(lab)))
    assert f"| {correct} | 5 | 0 |" in mutation_page([lab])
    changed = replace(lab, memory_mb=lab.memory_mb + 1)
    assert seeds_of(changed) == 0
    assert f"| {correct} | 0 | 0 |" in mutation_page([changed])
    assert ", changed since |" in mutation_page([changed])
    ran.clear()
    run(changed, 5)
    assert len(ran) == 5 * correct


def test_only_the_check_that_changed_runs_again(lab: Lab, ran: Ran) -> None:
    run(lab, 5)
    checks = lab.folder / "checks.py"
    text = checks.read_text()
    checks.write_text(text + "\n\nADDED = 1\n")
    assert seeds_of(lab) == 5
    judged = ".close_to(action * std + mean,"
    assert text.count(judged) == 1
    checks.write_text(text.replace(judged, ".close_to(mean + action * std,"))
    assert seeds_of(lab) == 0
    ran.clear()
    run(lab, 5)
    assert {names for _, names in ran} == {frozenset({"test_equals_the_reference"})}
    assert seeds_of(lab) == 5


def test_only_the_alternative_that_is_new_runs(lab: Lab, ran: Ran) -> None:
    run(lab, 5)
    before = {SOLUTION, *(one.label for one in alternatives(lab))}
    old = next(iter(sorted(lab.solution.glob("alternative_*.diff"))))
    old.with_name("alternative_new.diff").write_text(old.read_text())
    ran.clear()
    run(lab, 5)
    assert len(ran) == 5
    record = read_seeds(lab)
    assert record is not None
    assert set(record.seeds) > before


def test_checks_that_are_behind_run_up_to_the_others_first(lab: Lab, ran: Ran) -> None:
    run(lab, 5)
    checks = lab.folder / "checks.py"
    checks.write_text(checks.read_text().replace(".close_to(action * std + mean,", ".close_to(mean + action * std,"))
    ran.clear()
    run(lab, 8)
    alone = [seed for seed, names in ran if len(names) == 1]
    assert set(alone) == set(range(FIRST_SEED, FIRST_SEED + 5))
    together = [seed for seed, names in ran if len(names) > 1]
    assert set(together) == set(range(FIRST_SEED + 5, FIRST_SEED + 8))


def test_a_damaged_record_counts_as_none(lab: Lab, ran: Ran) -> None:
    (lab.solution / SEEDS_RECORD).write_text("{")
    assert seeds_of(lab) == 0
    assert run(lab, 1) == []
    assert seeds_of(lab) == 1
    assert ran
