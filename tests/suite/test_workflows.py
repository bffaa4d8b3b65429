"""Files that a hosting service or pre-commit reads: what they run is there, and what they name is true."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")
OF_THE_SYSTEM = {"echo", "grep", "python"}
FIELDS = {"markdown": {"value"}, "input": {"label"}, "textarea": {"label"}, "dropdown": {"label", "options"}}

WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read(path: Path) -> dict[str, Any]:
    """The document; YAML 1.1 reads the key `on` as True."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    return read(path)["jobs"]


@each_workflow
def test_a_workflow_can_only_read_and_has_a_time_limit(path: Path) -> None:
    assert read(path)["permissions"] == {"contents": "read"}
    assert read(path)[True], "it never starts"
    for name, job in jobs(path).items():
        assert job["timeout-minutes"] <= 60, name
        assert job["runs-on"].startswith("ubuntu-"), name
        assert set(job.get("needs", ())) <= set(jobs(path))


@each_workflow
def test_every_step_runs_what_is_there(path: Path) -> None:
    for name, job in jobs(path).items():
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), f"{name}: {step}"
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]), f"{name}: {step['uses']} has no version"
                continue
            for values in combinations(job):
                for line in filled_in(step["run"], values).splitlines():
                    assert_runs(line, f"{name}: {line}")


@each_workflow
def test_every_job_has_the_checkout_before_it_runs_anything(path: Path) -> None:
    for name, job in jobs(path).items():
        assert job["steps"][0].get("uses", "").startswith("actions/checkout@"), name


def test_the_matrix_is_what_the_project_promises() -> None:
    matrix = jobs(GITHUB / "workflows" / "ci.yml")["test"]["strategy"]["matrix"]
    classifiers = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if ":: Python :: 3." in line]
    assert matrix["python"][: len(classifiers)] == classifiers
    assert PROJECT["project"]["requires-python"] == f">={classifiers[0]}"
    oldest, pinned = matrix["torch"]
    [promised] = [need for need in PROJECT["project"]["dependencies"] if need.startswith("torch")]
    assert promised == f"torch>={oldest.removesuffix('.0')}"
    assert f"torch=={pinned}\n" in CONSTRAINTS
    tested = [tuple(sorted(values.items())) for values in combinations({"strategy": {"matrix": matrix}})]
    assert len(tested) == len(set(tested)) == len(matrix["part"]) * len(matrix["python"]) * 2


def test_every_part_of_ci_run_is_a_job() -> None:
    ran = {
        filled_in(step["run"], values)
        for job in jobs(GITHUB / "workflows" / "ci.yml").values()
        for values in combinations(job)
        for step in job["steps"]
        if "run" in step
    }
    assert {".ci/run", *(f".ci/run {part}" for part in parts())} <= ran


def test_the_hooks_of_pre_commit_are_programs_of_the_dev_extra() -> None:
    [repository] = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        assert_runs(hook["entry"], hook["id"])
        if "files" in hook:
            there = (path for folder in ("debugkit", "labs", "docs") for path in (ROOT / folder).rglob("*.*"))
            found = any(re.search(hook["files"], path.relative_to(ROOT).as_posix()) for path in there)
            assert found, f"{hook['id']}: no file of the repository is named by {hook['files']}"


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_is_one_that_the_service_accepts(path: Path) -> None:
    form = read(path)
    assert {"name", "description", "body"} <= set(form) <= {"name", "description", "body", "labels", "title"}
    named = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert len(named) == len(set(named)) > 0
    for field in form["body"]:
        assert FIELDS[field["type"]] <= set(field["attributes"])
        assert set(field) <= {"type", "id", "attributes", "validations"}
        assert set(field.get("validations", {})) <= {"required"}


@pytest.mark.parametrize("path", [*FORMS, GITHUB / "pull_request_template.md"], ids=lambda path: path.stem)
def test_what_a_form_asks_people_to_run_is_there(path: Path) -> None:
    for command in re.findall(r"`((?:lab|debugkit|python|\.ci/run) [^`]+)`", path.read_text(encoding="utf-8")):
        assert_runs(command, command)


def combinations(job: dict[str, Any]) -> Iterator[dict[str, str]]:
    """What a job's matrix stands for, as the service multiplies it: once, and empty, where there is none."""
    matrix = dict(job.get("strategy", {}).get("matrix", {}))
    excluded, included = matrix.pop("exclude", []), matrix.pop("include", [])
    made: list[dict[str, str]] = [{}]
    for key, values in matrix.items():
        made = [{**one, key: value} for one in made for value in values]
    yield from (one for one in made if not any(one.items() >= each.items() for each in excluded))
    yield from included


def filled_in(text: str, values: dict[str, str]) -> str:
    """The command with the matrix's values; fails on any other expression."""
    return re.sub(r"\$\{\{ *matrix\.(\w+) *\}\}", lambda found: values[found.group(1)], text)


def assert_runs(command: str, what: str) -> None:
    """The program is a file of the repository, a script that the extra `dev` installs, or the system's."""
    assert "${{" not in command, f"{what}: an expression that no step knows"
    program, *arguments = shlex.split(command)
    scripts = {script.name for script in entry_points(group="console_scripts")} | {"ruff"}
    assert (ROOT / program).is_file() or program in scripts | OF_THE_SYSTEM, f"{what}: there is no {program}"
    if program == ".ci/run":
        assert set(arguments) <= parts(), what
    if program in ("lab", "debugkit"):
        assert_has_command(program, arguments, what)
    for argument in arguments:
        if re.fullmatch(r"[\w./-]+\.(py|txt|toml)", argument) and argument != "matrix.txt":
            assert (ROOT / argument).is_file(), f"{what}: there is no {argument}"
        for extra in re.findall(r"^\.\[(.+)\]$", argument):
            assert set(extra.split(",")) <= set(PROJECT["project"]["optional-dependencies"]), what


def assert_has_command(program: str, arguments: list[str], what: str) -> None:
    reference = (ROOT / "docs" / "reference" / f"{program}.md").read_text(encoding="utf-8")
    words = []
    for argument in arguments:
        if not re.fullmatch(r"[a-z]+", argument):
            break
        words.append(argument)
    if words:
        assert re.search(rf"^#+ {' '.join([program, *words])}$", reference, re.MULTILINE), f"{what}: no such command"


def parts() -> set[str]:
    return set(re.findall(r"^(\w+) +(?:check|test) ", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE))


def test_the_hook_for_other_projects_runs_a_command_of_debugkit() -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    program, command = hook["entry"].split()
    assert f"## {program} {command}" in (ROOT / "docs" / "reference" / "debugkit.md").read_text(encoding="utf-8")
    assert hook["language"] == "system", "another environment has neither the project's torch nor its model"


def test_the_action_uploads_the_report_that_its_command_writes() -> None:
    action = read(GITHUB / "actions" / "debugkit" / "action.yml")
    command, upload = action["runs"]["steps"]
    assert set(command["env"]) == set(re.findall(r"\$(\w+)", command["run"]))
    inputs = {value for step in (command["env"], upload["with"]) for value in step.values()}
    named = {name for value in inputs for name in re.findall(r"inputs\.(\w+)", value)}
    assert named == set(action["inputs"])
    assert upload["with"]["sarif_file"] == command["env"]["REPORT"]
    assert upload["if"].startswith("always()"), "findings make the command fail, and are uploaded all the same"
