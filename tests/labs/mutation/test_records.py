"""The files beside a lab: reasons for equivalent mutants, and the recorded result; and the page made of the results."""

from __future__ import annotations

import json

import pytest

from labs.authoring.mutation.page import mutation_page
from labs.authoring.mutation.reasons import FILE, ReasonsError, read_reasons
from labs.authoring.mutation.record import (
    MutantRecord,
    Record,
    make_record,
    read_record,
    why_not_current,
    write_record,
)
from labs.grading.catalog import Lab

MUTANTS = (
    MutantRecord("a-1", "drop_detach", "policy.py", 3, "x → y", "refused", check="test_a", by="behaviour"),
    MutantRecord("a-2", "drop_detach", "policy.py", 4, "x → z", "refused", check="test_b", by="outcome"),
    MutantRecord("b-1", "move_axis", "policy.py", 5, "1 → 2", "equivalent", reason="The axis has one element."),
    MutantRecord("b-2", "move_axis", "policy.py", 6, "1 → 0", "hole"),
)


def recorded(lab: Lab) -> Record:
    record = make_record(lab, MUTANTS, seed=7, outcomes=True, cpu_s=12.44)
    write_record(lab, record)
    return record


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('other-1 = "Because."\n', "other-1 is no mutant of lab 03"),
        ('a-1 = ""\n', "a-1 needs a reason"),
        ("a-1 = 3\n", "a-1 needs a reason"),
        ("a-1 = because\n", "cannot be read"),
    ],
)
def test_a_reason_that_cannot_be_is_refused(lab: Lab, text: str, said: str) -> None:
    (lab.folder / FILE).write_text(text)
    with pytest.raises(ReasonsError, match=said):
        read_reasons(lab, {"a-1"})


def test_reasons_are_read_and_a_lab_without_any_has_none(lab: Lab) -> None:
    assert read_reasons(lab, {"a-1"}) == {}
    (lab.folder / FILE).write_text('a-1 = "Because."\n')
    assert read_reasons(lab, {"a-1", "a-2"}) == {"a-1": "Because."}


def test_a_record_is_read_as_it_was_written_with_a_line_for_each_mutant(lab: Lab) -> None:
    record = recorded(lab)
    assert read_record(lab) == record
    lines = (lab.folder / "mutants.json").read_text().splitlines()
    assert [json.loads(line.rstrip(","))["id"] for line in lines if '"operator"' in line] == [
        "a-1",
        "a-2",
        "b-1",
        "b-2",
    ]
    counts = record.counts
    assert (counts.mutants, counts.refused_structural, counts.refused_outcome) == (4, 1, 1)
    assert (counts.equivalent, counts.holes) == (1, 1)
    assert (record.seed, record.cpu_s) == (7, 12.4)


def test_an_empty_record_is_valid_json(lab: Lab) -> None:
    write_record(lab, make_record(lab, (), seed=1, outcomes=False, cpu_s=0))
    assert json.loads((lab.folder / "mutants.json").read_text())["mutants"] == []


def test_a_record_is_true_until_a_file_that_decides_changes(lab: Lab) -> None:
    assert "never tested" in str(why_not_current(lab))
    recorded(lab)
    assert why_not_current(lab) is None
    (lab.folder / FILE).write_text('b-2 = "Because."\n')
    assert why_not_current(lab) is None
    checks = lab.folder / "checks.py"
    checks.write_text(checks.read_text() + "\n\nADDED = 1\n")
    assert "has changed since" in str(why_not_current(lab))
    (lab.folder / "mutants.json").write_text("{")
    assert "cannot be read" in str(why_not_current(lab))


def test_the_page_shows_each_lab_and_the_catalogue(lab: Lab) -> None:
    page = mutation_page([lab])
    assert "Not tested with mutants yet: 03." in page
    record = recorded(lab)
    page = mutation_page([lab])
    assert f"| 03 The arm that overshoots | 4 | 1 | 1 | 1 | 1 | {record.date} |" in page
    assert "| **All 1** | **4** | **1** | **1** | **1** | **1** | |" in page
    assert "| `drop_detach` | `detach()` is left out. |" in page
    write_record(lab, make_record(lab, MUTANTS[:1], seed=7, outcomes=False, cpu_s=1))
    assert f"| 1 | 1 | not run | 0 | 0 | {record.date} |" in mutation_page([lab])
    checks = lab.folder / "checks.py"
    checks.write_text(checks.read_text() + "\n\nADDED = 1\n")
    assert f"| 0 | {record.date}, changed since |" in mutation_page([lab])
