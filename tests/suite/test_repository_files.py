"""SECURITY.md and CITATION.cff say what the code and the project's metadata say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import debugkit
from labs.grading import protections
from labs.grading.sandbox import limits, namespaces

ROOT = Path(__file__).parents[2]
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def table(heading: str) -> list[list[str]]:
    """The rows of the table below a heading of SECURITY.md, without the two lines at its top."""
    section = SECURITY.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_every_command_of_the_security_policy_exists() -> None:
    told = "".join(row[0] for row in table("What runs your code"))
    commands = re.findall(r"`((?:lab|debugkit) .+?)`", told)
    assert commands
    for command in commands:
        program, *words = command.partition(" --")[0].split()
        reference = (ROOT / "docs" / "reference" / f"{program}.md").read_text(encoding="utf-8")
        assert re.search(rf"^#+ {program} {' '.join(words)}$", reference, re.MULTILINE), f"there is no {command}"
    for name in re.findall(r"`debugkit\.(\w+)", SECURITY):
        assert name in debugkit.__all__


def test_every_file_of_the_security_policy_exists() -> None:
    paths = {path.rstrip("/") for path in re.findall(r"[`(]([\w./-]+/[\w.-]*)[`)]", SECURITY)} - {".git", "wrong_fixes"}
    assert {"labs/grading/sandbox", "tests/attacks", "docs/grading.md", "solutions", "docs"} <= paths
    missing = [path for path in sorted(paths) if not (ROOT / path).exists()]
    assert not missing


def test_the_sandbox_is_described_as_it_is() -> None:
    rows = {row[0]: row[1:] for row in table("What the sandbox promises")}
    assert all(len(cells) == 3 for cells in rows.values())
    [devices] = [cells[0] for name, cells in rows.items() if name == "devices"]
    assert tuple(re.findall(r"`(\w+)`", devices)) == namespaces._DEVICES
    assert "LAB_NO_NAMESPACES" in SECURITY
    assert "LAB_NO_NAMESPACES" in Path(namespaces.__file__).read_text(encoding="utf-8")
    limited = ("wall", "CPU time", "file size", "output", "answer", "memory", "processes")
    named = [words for words in limited if any(words in name for name in rows)]
    fields = {"wall_s", "cpu_s", "file_mb", "output_bytes", "reply_bytes", "memory_mb", "tasks"}
    assert len(named) == len(fields)
    assert fields | {"start_s"} == set(limits.Limits.__dataclass_fields__), "a limit that the table does not name"


def test_the_security_policy_says_what_each_missing_protection_means() -> None:
    """The protections that `lab doctor` tries, and the row of the table that goes when one is not granted."""
    rows = {row[0]: row[1:] for row in table("What the sandbox promises")}
    lost = {
        "namespaces": rows["files outside the private folder"],
        "signals to one process": rows["your other processes get no signal from it"],
        "signals to all processes": rows["your other processes get no signal from it"],
        "subreaper": rows["all processes are gone after a grade"],
        "memory limit": rows["memory"],
    }
    assert {one.name for one in protections()} == set(lost)
    for cells in lost.values():
        assert cells[0] != cells[2]


def test_the_number_of_attacks_is_at_least_the_one_told() -> None:
    told = int(re.search(r"more than (\d+) attacks", SECURITY).group(1))  # type: ignore[union-attr]
    files = (ROOT / "tests" / "attacks" / "attacks").glob("*.toml")
    assert sum(len(tomllib.loads(path.read_text(encoding="utf-8"))) for path in files) > told


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", PROJECT["version"]),
        ("license", PROJECT["license"]),
        ("title", "VLA Debugging Lab"),
        ("cff-version", "1.2.0"),
        ("type", "software"),
    ],
)
def test_the_citation_is_of_this_project(field: str, value: str) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation[field] == value
    assert {"authors", "message"} <= set(citation)
    assert f"site_url: {citation['url']}\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert citation["repository-code"] in SECURITY


def test_the_top_level_holds_nothing_that_strayed_in() -> None:
    """A downloaded wheel was committed once beside pyproject.toml."""
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()}
    entries = [path for path in ROOT.iterdir() if not path.name.startswith(".") and path.suffix != ".egg-info"]
    folders = {path.name for path in entries if path.is_dir()}
    files = {path.name for path in entries if path.is_file()}
    configuration = {"pyproject.toml", "constraints.txt", "mkdocs.yml", "CITATION.cff", "LICENSE"}
    assert folders - ignored == {"debugkit", "docs", "labs", "solutions", "tests"}
    assert files - configuration == {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
