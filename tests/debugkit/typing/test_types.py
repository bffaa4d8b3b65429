"""What a type checker makes of debugkit: it knows each public name, accepts a user's script, rejects mistakes."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, get_origin

import pytest

import child_processes
import debugkit

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
EXTENDED_DEPENDS_ON = ("debugkit", "tests/debugkit/typing")
USER_SCRIPT, WRONG_USES = HERE / "user_script.py", HERE / "wrong_uses.py"

Errors = set[tuple[str, int]]
"""File name and line of each error."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    return child_processes.run([sys.executable, "-m", *arguments], cwd=ROOT, env=environment)


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


@pytest.fixture(params=["mypy", "pyright"])
def errors(request: pytest.FixtureRequest) -> Errors:
    found: Errors = request.getfixturevalue(f"{request.param}_errors")
    return found


@pytest.mark.extended
def test_a_users_script_is_accepted_under_strict(errors: Errors) -> None:
    assert [line for name, line in sorted(errors) if name == USER_SCRIPT.name] == []
    assert {name for name, _ in errors} <= {USER_SCRIPT.name, WRONG_USES.name}  # none in debugkit itself


@pytest.mark.extended
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


INTEGRATIONS = ("accelerate", "hydra", "pytest_plugin")  # the others take seconds to import


def public_annotations() -> Iterator[tuple[str, str, str]]:
    """What is annotated, the module it is written in, and the annotation, of all that users call or read."""
    for name in debugkit.__all__:
        yield from _annotations(name, getattr(debugkit, name))
    for name in INTEGRATIONS:
        module = importlib.import_module(f"debugkit.integrations.{name}")
        for public in getattr(module, "__all__", [key for key in vars(module) if not key.startswith("_")]):
            if getattr(getattr(module, public), "__module__", "").startswith("debugkit"):
                yield from _annotations(f"{name}.{public}", getattr(module, public))


def _annotations(name: str, value: Any) -> Iterator[tuple[str, str, str]]:
    kinds = [kind for kind in getattr(value, "__mro__", ()) if kind.__module__.startswith("debugkit")]
    for one in (value, *kinds):
        if isinstance(one, FunctionType | type):
            texts = inspect.get_annotations(one).items()  # texts, as `from __future__ import annotations` leaves them
            yield from ((f"{name}.{key}", one.__module__, text) for key, text in texts if _is_public(key) and text)
    for kind in kinds:
        for key, member in vars(kind).items():
            method = getattr(member, "fget", None) or getattr(member, "__func__", member)
            made_by_watch = kind is debugkit.Run and key == "__init__"
            if isinstance(method, FunctionType) and _is_public(key) and not made_by_watch:
                yield from _annotations(f"{name}.{key}", method)


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name in ("__init__", "__enter__")


@functools.cache
def homes(module: str) -> dict[str, str]:
    """Name → the module that defines it, of the classes and aliases that a module defines, and of what it imports."""
    tree = ast.parse(Path(importlib.import_module(module).__file__ or "").read_text(encoding="utf-8"))
    found = {node.name: module for node in tree.body if isinstance(node, ast.ClassDef)}
    found |= {ast.unparse(node.targets[0]): module for node in tree.body if isinstance(node, ast.Assign)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: node.module or "" for alias in node.names}
    return found


def internal_names(module: str, annotation: str) -> list[str]:
    """The names of an annotation that are debugkit's own and cannot be imported; a Literal of strings needs no name."""
    used = {node.id for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Name)}
    exported = {*debugkit.__all__, *importlib.import_module("debugkit.integrations.hydra").__all__}
    own = {name: homes(module).get(name, "") for name in used - exported}
    return [
        name
        for name, home in own.items()
        if home.startswith("debugkit")
        and name != "Pair"  # of `Declare`: two functions, which a caller writes as a tuple
        and get_origin(getattr(importlib.import_module(home), name)) is not Literal
    ]


def test_every_type_in_a_public_signature_or_field_is_public() -> None:
    """A type that cannot be imported cannot be written in an annotation."""
    found = list(public_annotations())
    assert len(found) > 300
    internal = {place: names for place, module, text in found if (names := internal_names(module, text))}
    assert internal == {}


def test_the_search_finds_an_internal_type() -> None:
    assert internal_names("debugkit.watched_run", "Monitor | None") == ["Monitor"]
    assert internal_names("debugkit.judging", "Observations") == ["Observations"]  # an alias
    assert internal_names("debugkit.instruments.gradient_table", "tuple[State, GradientRow]") == []
