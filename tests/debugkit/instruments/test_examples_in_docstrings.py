"""Every `>>>` example of the instruments and of their probes runs as printed."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
import torch
from torch import nn

import debugkit.instruments

PROBES = [f"debugkit.probes.{name}" for name in ("autograd_graph", "detachments", "shapes")]
INSTRUMENTS = [f"debugkit.instruments.{m.name}" for m in pkgutil.iter_modules(debugkit.instruments.__path__)]


def examples() -> list[doctest.DocTest]:
    found = []
    for name in PROBES + INSTRUMENTS:
        module = importlib.import_module(name)
        scope = {**vars(module), "torch": torch, "nn": nn, "debugkit": debugkit}
        found += [test for test in doctest.DocTestFinder(recurse=True).find(module, globs=scope) if test.examples]
    return found


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_the_example_runs_as_printed(example: doctest.DocTest) -> None:
    torch.manual_seed(0)
    output: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(
        example, out=output.append, clear_globs=False
    )
    assert result.attempted > 0
    assert result.failed == 0, "".join(output)
