"""What every rule promises, whoever wrote it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import debugkit.rules
from debugkit.experiments import EXPERIMENTS
from debugkit.probes import PROBES
from debugkit.providers import can_observe
from debugkit.registry import FAMILIES, HEADINGS, Rule, all_rules

RULES = all_rules()
FOLDER = Path(debugkit.rules.__file__).parent
FIXTURES = Path(__file__).parents[1] / "rules"
LESSON = re.compile(r"\[Lab \d\d\]\(\.\./\.\./lessons/(" + "|".join(FAMILIES) + r")/\d\d_[a-z0-9_]+\.md\)")

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)


def test_every_file_declares_exactly_one_rule() -> None:
    files = sorted(path.stem for path in FOLDER.glob("dk*.py"))
    assert files == sorted(rule.module.rpartition(".")[2] for rule in RULES)


def test_codes_and_names_are_distinct() -> None:
    assert len({rule.code for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)


@each_rule
def test_file_is_named_after_code_and_fault(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert rule.module.rpartition(".")[2] == f"{rule.code.lower()}_{rule.name.replace('-', '_')}"


@each_rule
def test_page_has_all_headings_in_order_and_none_is_empty(rule: Rule) -> None:
    parts = re.split(r"^## (.+)$", rule.page, flags=re.MULTILINE)
    assert tuple(parts[1::2]) == HEADINGS
    assert all(text.strip() for text in parts[2::2])


@each_rule
def test_summary_is_one_sentence_that_fits_a_line(rule: Rule) -> None:
    assert 20 <= len(rule.summary) <= 110
    assert rule.summary.endswith(".")


@each_rule
def test_lesson_is_a_link_or_says_that_there_is_none(rule: Rule) -> None:
    lesson = rule.page.rpartition("## Lesson")[2].strip()
    assert LESSON.match(lesson) or lesson.startswith("No lab of its own")


@each_rule
def test_module_imports_no_torch_and_no_other_rule(rule: Rule) -> None:
    path = FOLDER / f"{rule.module.rpartition('.')[2]}.py"
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name.split(".")[0] not in ("torch", "numpy", "transformers")
            assert not name.startswith(("debugkit.rules", "debugkit.probes", "debugkit.experiments"))


@each_rule
def test_a_check_rule_has_a_provider_for_all_it_needs(rule: Rule) -> None:
    if "check" in rule.modes and "watch" not in rule.modes:
        assert can_observe(rule.needs), [kind.__name__ for kind in rule.needs]
    assert rule.modes


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


def test_no_observation_has_two_providers() -> None:
    can_observe(())
    assert not set(PROBES) & set(EXPERIMENTS)
