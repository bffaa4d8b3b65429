"""Paths: every lab is in one, each after what it builds on, and the commands follow them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import labs
from labs.grading.catalog import CHAPTERS, all_labs
from labs.learner.paths import PATHS, all_paths

LabCommand = Callable[..., tuple[int, str, str]]
TEACHING = Path(labs.__file__).parents[1] / "docs" / "teaching.md"
OWN = """
[short]
title = "In a hurry"
about = "One lab."
labs = ["91", "03"]
"""


def in_time(order: list[str]) -> list[str]:
    """The labs of an order that come before one of the same order that they build on."""
    by_id = {lab.id: lab for lab in all_labs()}
    return [
        f"{number} before {before}"
        for at, number in enumerate(order)
        for before in (by_id[number].prerequisites if number in by_id else ())
        if before in order[at:]
    ]


def test_no_lab_builds_on_itself() -> None:
    by_id = {lab.id: lab for lab in all_labs()}
    done: set[str] = set()
    while ready := [lab.id for lab in by_id.values() if lab.id not in done and done.issuperset(lab.prerequisites)]:
        done.update(ready)
    assert not by_id.keys() - done, "these build on each other, or on a lab that there is not"


def test_every_lab_beyond_one_star_builds_on_another() -> None:
    alone = [lab.id for lab in all_labs() if lab.difficulty > 1 and not lab.prerequisites]
    assert not alone, f"lab.toml of {alone}: fill in `prerequisites`, the labs that teach what this one requires"


def test_every_lab_is_in_a_path() -> None:
    named = {number for path in all_paths().values() for number in path.labs}
    missing = [lab.id for lab in all_labs() if lab.id not in named]
    assert not missing, f"labs/{PATHS}: put {missing} into a path"


@pytest.mark.parametrize("name", ["new-to-training", "vla", "numerics", "distributed"])
def test_a_path_has_each_lab_once_and_after_what_it_builds_on(name: str) -> None:
    order = list(all_paths()[name].labs)
    assert len(set(order)) == len(order)
    assert all(int(number[0]) < len(CHAPTERS) for number in order)
    assert not in_time(order), f"labs/{PATHS}, {name}"


def test_the_ten_weeks_follow_what_labs_build_on() -> None:
    weeks = TEACHING.read_text(encoding="utf-8").partition("## Ten weeks")[2].partition("\n## ")[0]
    rows = [row.split("|")[3:5] for row in weeks.splitlines() if re.match(r"\| +\d+ \|", row)]
    order = [number for row in rows for cell in row for number in re.findall(r"\d\d", cell)]
    assert len(rows) == 10
    assert not in_time(order)


def test_labs_without_paths_refuse_the_option(lab_command: LabCommand) -> None:
    code, out, err = lab_command("list", "--path", "short")
    assert (code, out) == (2, "")
    assert "these labs have no paths" in err


@pytest.fixture
def with_path(collection: Path) -> None:
    """The collection has a path."""
    (collection / "labs" / PATHS).write_text(OWN, encoding="utf-8")


@pytest.mark.usefixtures("with_path")
def test_a_collection_has_paths_of_its_own(lab_command: LabCommand) -> None:
    code, out, err = lab_command("list", "--path", "short")
    assert (code, err) == (0, "")
    assert "0 of 1 passed" in out, "a lab that there is not is not counted"
    assert "In a hurry" in out
    assert "The arm that overshoots" in out
    assert "lab start 03" in out
    assert "short" in lab_command("list")[1]
    assert "short · 0 of 1 passed" in lab_command("next", "--path", "short")[1]


@pytest.mark.usefixtures("with_path")
def test_a_path_as_json(lab_command: LabCommand) -> None:
    document = json.loads(lab_command("list", "--path", "short", "--json")[1])
    assert document["path"] == "short"
    assert [lab["id"] for lab in document["labs"]] == ["03"]
    assert json.loads(lab_command("next", "--path", "short", "--json")[1])["path"] == "short"
    assert "path" not in json.loads(lab_command("list", "--json")[1])


@pytest.mark.usefixtures("with_path")
@pytest.mark.parametrize("verb", ["list", "next"])
def test_an_unknown_path_names_those_that_there_are(lab_command: LabCommand, verb: str) -> None:
    code, out, err = lab_command(verb, "--path", "shrt")
    assert (code, out) == (2, "")
    assert "There is no path shrt. The paths are: short." in err


def test_a_malformed_file_is_named(collection: Path, lab_command: LabCommand) -> None:
    (collection / "labs" / PATHS).write_text('[short]\ntitle = "x"\n', encoding="utf-8")
    code, _, err = lab_command("list", "--path", "short")
    assert code == 3
    assert f"{PATHS}: Object missing required field `about`" in err
