"""`%load_ext debugkit` and `%%watch`, in IPython's own shell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from child_processes import run

pytest.importorskip("IPython", reason="IPython is not installed: pip install ipython")

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

SETUP = """
import torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step(zero=True):
    if zero:
        optimizer.zero_grad()
    model(torch.randn(8, 3)).square().mean().backward()
    optimizer.step()
"""
Cell = Callable[[str], Any]


@pytest.fixture
def cell(ipython: Any) -> Cell:
    """Run one cell and raise what it raises."""

    def run_cell(source: str) -> Any:
        with capture_output(display=True) as shown:
            result = ipython.run_cell(source)
        result.raise_error()
        return shown

    run_cell("%load_ext debugkit")
    run_cell(SETUP)
    return run_cell


def report_of(name: str = "report") -> Any:
    return InteractiveShell.instance().user_ns[name]


def test_a_cell_is_watched_and_its_report_is_shown(cell: Cell) -> None:
    shown = cell("%%watch model optimizer\nfor index in range(4):\n    step(zero=False)\n")
    assert "DK501" in {finding.code for finding in report_of().findings}
    [output] = shown.outputs
    assert "DK501" in output.data["text/html"]
    assert InteractiveShell.instance().user_ns["index"] == 3


def test_the_options_reach_watch(cell: Cell) -> None:
    cell("%%watch model optimizer --select DK2 --name mine\nfor _ in range(3):\n    step(zero=False)\n")
    assert report_of("mine").findings == ()
    cell("%%watch model\nstep()\n")


def test_an_exception_of_the_cell_is_raised_after_the_report(cell: Cell) -> None:
    with pytest.raises(ZeroDivisionError):
        cell("%%watch model optimizer\nstep()\n1 / 0\n")
    assert "ZeroDivisionError" in report_of().to_text()


def test_text_of_the_program_is_escaped_in_the_page(cell: Cell) -> None:
    with pytest.raises(ValueError, match="script"):
        cell("%%watch model optimizer\nstep()\nraise ValueError('<script>alert(1)</script>')\n")
    page = report_of()._repr_html_()
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page


@pytest.mark.parametrize("line", ["", "model optimizer --often 3", "model optimizer --every few", "model 'optimizer"])
def test_other_arguments_are_a_usage_error(cell: Cell, line: str) -> None:
    with pytest.raises(UsageError, match="Usage: %%watch MODEL"):
        InteractiveShell.instance().run_cell_magic("watch", line, "step()")


def test_ipython_is_imported_only_when_asked() -> None:
    code = "import sys, debugkit, debugkit.watched_run; assert 'IPython' not in sys.modules"
    run([sys.executable, "-c", code], check=True)
