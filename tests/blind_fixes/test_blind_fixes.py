"""The wrong fixes still apply, each has a verdict, and the page quotes the verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from blind_fixes.corpus import ACCEPTED, TRIALS, Counts, counts, fixes_of, results
from labs.authoring.variants import base_files
from labs.grading.catalog import Lab, all_labs

PAGES = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("lab", all_labs(), ids=lambda lab: lab.id)
@pytest.mark.parametrize("trial", TRIALS)
def test_every_fix_applies_and_has_a_verdict(trial: str, lab: Lab) -> None:
    fixes = fixes_of(trial, lab)
    assert {fix.name for fix in fixes} == set(results()[trial].get(lab.id, ()))
    for fix in fixes:
        files = fix.files(lab)
        assert fix.why
        assert files != base_files(lab, "solution")
        assert files != base_files(lab, "starter")
        for name, text in files.items():
            if name.endswith(".py"):
                compile(text, f"{fix.name}/{name}", "exec")


@pytest.mark.parametrize("trial", TRIALS)
def test_no_fix_of_a_trial_is_missing(trial: str) -> None:
    assert sum(len(fixes_of(trial, lab)) for lab in all_labs()) == TRIALS[trial]


@pytest.mark.parametrize("lab", all_labs(), ids=lambda lab: lab.id)
def test_no_name_is_used_in_two_trials(lab: Lab) -> None:
    names = [fix.name for trial in TRIALS for fix in fixes_of(trial, lab)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("page", ["grading.md", "grading.ko.md"])
def test_the_page_quotes_the_verdicts(page: str) -> None:
    text = (PAGES / page).read_text(encoding="utf-8")
    for trial, recorded in results().items():
        found = counts(recorded)
        assert f"| `{trial}` | {found.fixes} | {found.first} | {found.now} | {found.disputed} |" in text


def test_counts_tell_first_and_present_verdicts_apart() -> None:
    recorded = {"03": {"a": [ACCEPTED, "test_a"], "b": [ACCEPTED, "disputed"], "c": ["test_b", "test_b"]}}
    assert counts({**recorded, "04": {"d": [ACCEPTED, ACCEPTED]}}) == Counts(fixes=4, first=3, now=2, disputed=1)
