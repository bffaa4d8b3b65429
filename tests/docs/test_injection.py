"""Every alarm on a composed program has a reading, and the page is what the record gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs_modules import load

page_maker = load("_injection")

SEED = {"seed": 1000, "kind": "mlp", "alarms": [{"code": "DK206"}], "faults": []}
READING = {"seed": 1000, "code": "DK206", "kind": "false", "why": "The rate is usual."}


def test_the_page_is_what_the_record_gives(root: Path) -> None:
    assert (root / "docs" / "debugkit" / "injection.md").read_text(encoding="utf-8") == page_maker.page()


def test_an_alarm_is_shown_with_its_reading() -> None:
    assert page_maker.read_alarms([SEED], [READING]) == [(SEED, SEED["alarms"][0], READING)]


@pytest.mark.parametrize(
    ("readings", "problem"),
    [
        ([], "seed 1000: DK206 has no reading"),
        ([READING, READING | {"code": "DK101"}], "seed 1000: the reading of DK101 belongs to no alarm"),
        ([READING | {"kind": "correct"}], "seed 1000: correct is no kind"),
    ],
)
def test_an_alarm_without_a_reading_and_a_reading_without_an_alarm_are_refused(
    readings: list[dict[str, Any]], problem: str
) -> None:
    with pytest.raises(page_maker.ReadingError) as raised:
        page_maker.read_alarms([SEED], readings)
    assert problem in str(raised.value)


def test_the_interval_is_that_of_wilson() -> None:
    assert page_maker.interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert page_maker.interval(0, 20)[0] == 0.0


def test_the_record_has_a_hundred_programs_of_every_kind_and_only_test_seeds(root: Path) -> None:
    record = json.loads((root / "tests" / "injection" / "record.json").read_text(encoding="utf-8"))
    assert len(record["seeds"]) >= 100
    assert {seed["kind"] for seed in record["seeds"]} == set(record["kinds"])
    assert all(seed["seed"] >= 1000 for seed in record["seeds"])
