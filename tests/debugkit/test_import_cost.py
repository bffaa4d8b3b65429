"""What importing debugkit loads: nothing that a training script has not loaded itself."""

from __future__ import annotations

import json
import sys

import pytest

import debugkit
from child_processes import run


def loaded_by(program: str, after: str = "") -> set[str]:
    """The modules that a program loads which `after` has not loaded."""
    count = "sys.stderr.write(json.dumps(sorted(set(sys.modules) - before)))"
    code = f"import json, sys\n{after}\nbefore = set(sys.modules)\n{program}\n{count}"
    done = run([sys.executable, "-c", code], check=True)
    return set(json.loads(done.stderr.rpartition("\n")[2]))


def test_importing_debugkit_loads_a_handful_of_its_own_modules_and_no_torch() -> None:
    added = loaded_by("import debugkit", after="import importlib, types, typing")
    assert {name for name in added if not name.startswith("debugkit")} <= {"__future__"}
    assert len(added) <= 3


def test_listing_the_rules_loads_neither_torch_nor_numpy() -> None:
    loaded = loaded_by("sys.argv = ['debugkit', 'rules', '--json']\nimport debugkit.cli as cli\ncli.main()")
    assert not loaded & {"torch", "numpy", "pydantic", "transformers"}


def test_a_check_loads_no_terminal_library_beyond_what_torch_does() -> None:
    run = "debugkit.check(torch.nn.Linear(2, 2), torch.ones(3, 2), lambda m, b: m(b).mean(), select='DK002')"
    added = loaded_by(run, after="import torch, debugkit, torch._dynamo")
    assert "debugkit.report" in added
    packages = {name.split(".")[0] for name in added}
    assert not packages & {"rich", "typer", "click", "transformers", "labs"}


@pytest.mark.parametrize("name", debugkit.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert callable(getattr(debugkit, name))
    assert name in dir(debugkit)


def test_importing_a_file_does_not_hide_the_function_of_its_name() -> None:
    import debugkit.watched_run

    assert not isinstance(debugkit.watch, type(sys))


def test_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        debugkit.chekc  # noqa: B018
