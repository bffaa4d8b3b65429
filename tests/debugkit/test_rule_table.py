"""What holds for every rule."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import debugkit.rules
from debugkit.observation import measurement_of
from debugkit.rule import FAMILIES, HEADINGS, Rule, all_rules

RULES = all_rules()
FOLDER = Path(debugkit.rules.__file__).parent
FIXTURES = Path(__file__).parents[1] / "rules"
LESSON = re.compile(r"\[Lab \d\d\]\(\.\./\.\./lessons/(" + "|".join(FAMILIES) + r")/\d\d_[a-z0-9_]+\.md\)")

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)


def test_every_folder_declares_exactly_one_rule() -> None:
    folders = sorted(path.name for path in FOLDER.glob("dk*") if path.is_dir())
    assert folders == sorted(rule.module.rpartition(".")[2] for rule in RULES)


def test_codes_and_names_are_distinct() -> None:
    assert len({rule.code for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)


@each_rule
def test_folder_is_named_after_code_and_fault(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert rule.module.rpartition(".")[2] == f"{rule.code.lower()}_{rule.name.replace('-', '_')}"


@each_rule
def test_page_has_all_headings_in_order_and_none_is_empty(rule: Rule) -> None:
    parts = re.split(r"^## (.+)$", rule.page, flags=re.MULTILINE)
    assert tuple(heading for heading in parts[1::2] if heading != "Cost") == HEADINGS
    assert "TODO" not in rule.page
    assert all(text.strip() for text in parts[2::2])


@each_rule
def test_summary_is_one_sentence_that_fits_a_line(rule: Rule) -> None:
    assert 20 <= len(rule.summary) <= 110
    assert rule.summary.endswith(".")


@each_rule
def test_lesson_is_a_link_or_says_that_there_is_none(rule: Rule) -> None:
    lesson = rule.page.rpartition("## Lesson")[2].strip()
    assert LESSON.match(lesson) or lesson.startswith("No lab of its own")


def test_rules_and_their_observations_import_no_torch() -> None:
    code = (
        "import sys; from debugkit.rule import all_rules; all_rules(); print([m for m in sys.modules if m == 'torch'])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


@each_rule
def test_every_observation_names_a_measurement_that_can_be_imported_and_makes_it(rule: Rule) -> None:
    assert rule.modes
    for kind in (*rule.needs, *rule.uses):
        measurement = measurement_of(kind)
        if measurement.kind == "probe":
            assert measurement.load().yields is kind
        elif measurement.kind == "function":
            assert get_type_hints(measurement.load())["return"] is kind
        else:
            assert not {"check", "loader"} & set(rule.modes) or kind in rule.uses


@each_rule
def test_the_cost_is_computed_from_the_measurements(rule: Rule) -> None:
    paid = sum(measurement_of(kind).cost for kind in rule.needs or rule.uses)
    assert rule.passes == paid
    assert f"`{rule.cost}`" in rule.page.partition("## Cost\n")[2].partition("\n\n## ")[0]


@each_rule
def test_both_fixtures_exist(rule: Rule) -> None:
    for kind in ("fires", "silent"):
        assert (FIXTURES / rule.code.lower() / f"{kind}.py").is_file()


def test_no_rule_is_a_consequence_of_itself_by_any_chain() -> None:
    causes = {rule.code: rule.consequence_of for rule in RULES}

    def above(code: str, seen: tuple[str, ...]) -> None:
        assert code not in seen, " → ".join((*seen, code))
        for cause in causes.get(code, ()):
            above(cause, (*seen, code))

    for code in causes:
        above(code, ())
