"""Every rule's page has a wrong and a right program: run as printed, one gives the finding shown and the other none."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import runpy
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
import torch

from child_processes import run
from debugkit.rule import Rule, all_rules
from docs_modules import DOCS, load
from labs.authoring import printed

PAGES = load("_rule_pages")
OWN_PROCESSES = ("DK602", "DK802", "DK804", "DK806")
"""Examples that start processes of their own, which import the program again: it has to be a program's main file. And
one that measures the memory of its process, where what other tests leave behind is freed at any time."""

pytestmark = pytest.mark.extended
EXTENDED_DEPENDS_ON = (
    "debugkit",
    "docs/*.py",
    "docs/_symptoms.toml",
    "docs/debugkit/rules",
    "docs/rule_examples",
    "labs/*/lab.toml",
    "labs/authoring/printed.py",
    "tests/docs",
)

of_each_rule = pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)


def shown(rule: Rule) -> dict[str, str]:
    """The two programs of a rule's page and the finding, as printed."""
    text = (DOCS / "debugkit" / "rules" / f"{rule.module.rpartition('.')[2]}.md").read_text(encoding="utf-8")
    example = text.split("\n## Example\n", 1)[1].split("\n## ", 1)[0]
    programs = re.findall(r'^    ```python title="(\w+)\.py"[^\n]*\n(.*?)^    ```', example, re.DOTALL | re.MULTILINE)
    [finding] = re.findall(r"^```text\n(.*?)^```", example, re.DOTALL | re.MULTILINE)
    return {name: textwrap.dedent(program) for name, program in programs} | {"finding": finding}


def printed_by(rule: Rule, name: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """What one of the programs of a page prints, alone in an empty folder."""
    (folder / f"{name}.py").write_text(shown(rule)[name], encoding="utf-8")
    if rule.code in OWN_PROCESSES:
        environment = {**os.environ, "COLUMNS": "88", "PYTHONPATH": str(DOCS.parent)}
        return run([sys.executable, f"{name}.py"], cwd=folder, env=environment).stdout
    capfd.readouterr()
    gc.collect()
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            runpy.run_path(f"{name}.py", run_name="__main__")
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
    return capfd.readouterr().out


@of_each_rule
def test_the_wrong_program_gives_the_finding_shown(
    rule: Rule, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "88")
    finding = shown(rule)["finding"]
    assert rule.code in finding
    out = printed_by(rule, "wrong", tmp_path, capfd)
    wrong = printed.difference(finding, out, printed.Tolerance(relative=0.05))
    assert wrong is None, f"docs/rule_examples/{rule.code.lower()}/finding.txt:\n{wrong}"


@of_each_rule
def test_the_right_program_gives_none(
    rule: Rule, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "88")
    assert PAGES.NO_FINDING in printed_by(rule, "right", tmp_path, capfd)


@of_each_rule
def test_the_two_programs_differ_in_a_few_lines(rule: Rule) -> None:
    programs = shown(rule)
    removed, added = PAGES._changed_lines(programs["wrong"], programs["right"])
    assert removed or added
    assert len(removed) + len(added) <= 8
    assert max(len(line) for name in ("wrong", "right") for line in programs[name].splitlines()) <= 88


@of_each_rule
def test_a_page_leads_to_other_rules_and_to_a_way_to_accept(rule: Rule) -> None:
    page = PAGES.rule_page(rule)
    related = PAGES.related_rules(rule)
    assert related
    assert rule not in related
    assert f'select="{rule.code}"' in page
    assert re.search(rf'ignore=(\{{)?"{rule.code}"', page)
    assert page.count(f"({rule.cost_in_words}") + page.count(rule.cost_in_words) == 2, (
        "the table and the text say the same"
    )
