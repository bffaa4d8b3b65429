"""Every `>>>` example in debugkit runs as printed."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
import torch
from torch import nn

import debugkit
from labs.authoring import printed
from torch_versions import needs_python_device

MODULES = [
    found.name for found in pkgutil.walk_packages(debugkit.__path__, "debugkit.") if "__main__" not in found.name
]


class WithinTolerance(doctest.OutputChecker):
    """Measurements may differ as far as those of the guide's snippets may."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(want, got, optionflags) or printed.difference(want, got) is None


def examples() -> list[doctest.DocTest]:
    found = []
    for name in MODULES:
        module = importlib.import_module(name)
        scope = {**vars(module), "torch": torch, "nn": nn, "debugkit": debugkit}
        found += [test for test in doctest.DocTestFinder(recurse=True).find(module, globs=scope) if test.examples]
    return found


def marked(example: doctest.DocTest) -> object:
    simulates = example.name.endswith(".simulate_device")
    return pytest.param(example, id=example.name, marks=[needs_python_device] if simulates else [])


@pytest.mark.parametrize("example", [marked(example) for example in examples()])
def test_the_example_runs_as_printed(example: doctest.DocTest) -> None:
    torch.manual_seed(0)
    output: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.DocTestRunner(WithinTolerance(), optionflags=flags).run(
        example, out=output.append, clear_globs=False
    )
    assert result.attempted > 0
    assert result.failed == 0, "".join(output)
