"""What a type checker makes of debugkit: it knows each public name, accepts a user's script, rejects mistakes."""

from __future__ import annotations

import ast
import importlib
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import debugkit

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
USER_SCRIPT, WRONG_USES = HERE / "user_script.py", HERE / "wrong_uses.py"

Errors = set[tuple[str, int]]
"""File name and line of each error."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.fixture(scope="module")
def mypy_errors() -> Errors:
    done = run("mypy", "--strict", "--output=json", str(USER_SCRIPT), str(WRONG_USES))
    assert done.returncode == 1, done.stdout + done.stderr  # 1: errors were found; 2: it could not run
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {(Path(each["file"]).name, each["line"]) for each in found if each["severity"] == "error"}


@pytest.fixture(scope="module")
def pyright_errors() -> Errors:
    started = run("pyright", "--version")
    if started.returncode != 0:
        reason = (started.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        pytest.skip(f"pyright does not start here ({reason}): pip install 'pyright[nodejs]'")
    done = run("pyright", "--outputjson", "--pythonpath", sys.executable, str(USER_SCRIPT), str(WRONG_USES))
    document = json.loads(done.stdout)
    assert document["summary"]["filesAnalyzed"] == 2, done.stderr
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        for each in document["generalDiagnostics"]
        if each["severity"] == "error"
    }


@pytest.fixture(params=["mypy", pytest.param("pyright", marks=pytest.mark.extended)])
def errors(request: pytest.FixtureRequest) -> Errors:
    found: Errors = request.getfixturevalue(f"{request.param}_errors")
    return found


@pytest.mark.slow
def test_a_users_script_is_accepted_under_strict(errors: Errors) -> None:
    assert [line for name, line in sorted(errors) if name == USER_SCRIPT.name] == []
    assert {name for name, _ in errors} <= {USER_SCRIPT.name, WRONG_USES.name}  # none in debugkit itself


@pytest.mark.slow
def test_each_mistake_is_rejected_and_nothing_else(errors: Errors) -> None:
    marked = [
        number
        for number, line in enumerate(WRONG_USES.read_text(encoding="utf-8").splitlines(), start=1)
        if line.endswith("# wrong")
    ]
    assert len(marked) > 30
    assert sorted(line for name, line in errors if name == WRONG_USES.name) == marked


def test_the_users_script_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(USER_SCRIPT), run_name="__main__")


def test_the_users_script_uses_every_public_name() -> None:
    tree = ast.parse(USER_SCRIPT.read_text(encoding="utf-8"))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "debugkit"
    }
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "debugkit"
        for alias in node.names
    }
    assert set(debugkit.__all__) - used - imported == set()


def typed_names() -> dict[str, str]:
    """Name → module, as the part of `debugkit/__init__.py` that only a type checker reads has them."""
    (block,) = (
        node
        for node in ast.parse(Path(debugkit.__file__).read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )
    names: dict[str, str] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module is not None
        for alias in node.names:
            assert alias.asname == alias.name, f"{alias.name} is re-exported only as `{alias.name} as {alias.name}`"
            assert alias.name not in names
            names[alias.name] = node.module
    return names


def test_the_typed_names_are_all_and_dir() -> None:
    assert sorted(typed_names()) == list(debugkit.__all__)
    assert sorted(dir(debugkit)) == sorted([*debugkit.__all__, "__version__"])


@pytest.mark.parametrize(("name", "module"), sorted(typed_names().items()))
def test_a_name_is_at_run_time_what_the_type_checker_sees(name: str, module: str) -> None:
    assert getattr(debugkit, name) is getattr(importlib.import_module(module), name)


def test_every_instrument_and_its_result_are_public() -> None:
    """A result type that cannot be named cannot be annotated."""
    for path in sorted((Path(debugkit.__file__).parent / "instruments").glob("[a-z]*.py")):
        if path.stem == "overfit_result":  # the result of overfit_one_batch
            continue
        assert path.stem in debugkit.__all__
        instrument: Callable[..., object] = getattr(debugkit, path.stem)
        returned = instrument.__annotations__.get("return", path.stem)
        for part in str(returned).replace("Iterator[None]", "None").split(" | "):
            assert part == "None" or part in debugkit.__all__, f"{path.stem} returns {part}, which is not public"
