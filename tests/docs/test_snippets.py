"""Python in the guide is a file that runs, and it prints what the guide shows."""

from __future__ import annotations

import gc
import re
import runpy
from pathlib import Path

import pytest

from labs.authoring import printed
from sampling import one_in, parameters

ROOT = Path(__file__).resolve().parents[2]
SNIPPETS = sorted((ROOT / "docs" / "snippets").glob("*.py"))
PAGES = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md") if page.name[0] != "_")
EVERY = 4
"""The guide's own snippets and one of so many lessons' run in the ordinary suite; all of them in the extended one."""
EXTENDED_DEPENDS_ON = ("debugkit", "docs/snippets", "labs")
_PYTHON = re.compile(r"^( *)```py(?:thon)?\b[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


ORDINARY = [
    is_sampled or not snippet.stem.startswith("lesson_")
    for snippet, is_sampled in zip(SNIPPETS, one_in(EVERY, SNIPPETS), strict=True)
]


@pytest.mark.parametrize("snippet", parameters(SNIPPETS, ORDINARY, name=lambda snippet: snippet.stem))
def test_a_snippet_runs_and_prints_what_the_guide_shows(
    snippet: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.collect()  # one snippet counts the graphs that are alive: those of the snippet before are not among them
    monkeypatch.chdir(snippet.parent)
    monkeypatch.setenv("COLUMNS", "100")
    runpy.run_path(str(snippet), run_name="__main__")
    shown = snippet.with_suffix(".txt")
    if shown.exists():
        wrong = printed.difference(shown.read_text(encoding="utf-8"), capsys.readouterr().out)
        assert wrong is None, f"{shown.name} is not what {snippet.name} prints:\n{wrong}"


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: snippet.stem)
def test_a_snippet_asserts_what_its_page_promises_and_is_on_a_page(snippet: Path) -> None:
    assert re.search(r"^assert ", snippet.read_text(encoding="utf-8"), re.MULTILINE)
    assert snippet.name in PAGES


def test_every_shown_output_has_its_snippet() -> None:
    shown = {text.stem for text in (ROOT / "docs" / "snippets").glob("*.txt")}
    assert shown <= {snippet.stem for snippet in SNIPPETS}


def test_the_guide_holds_no_python_of_its_own() -> None:
    """Lessons quote broken code and rule pages show single lines. What a reader copies is a tested file."""
    found = 0
    for page in sorted(page for folder in ("debugkit", "guides") for page in (ROOT / "docs" / folder).glob("*.md")):
        for _, code in _PYTHON.findall(page.read_text(encoding="utf-8")):
            found += 1
            lines = [line.strip() for line in code.splitlines() if line.strip()]
            assert all(line.startswith('--8<-- "') for line in lines), f"{page}: {lines[0]!r} is not from docs/snippets"
    assert found


def test_debugkit_in_three_lines_as_the_readme_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    import torch
    from torch import nn

    import debugkit

    [(_, code)] = _PYTHON.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    model = nn.Linear(4, 1)
    batch = (torch.randn(8, 4), torch.randn(8, 1))

    def loss_fn(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return (model(batch[0]) - batch[1]).pow(2).mean()

    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(3):
            optimizer.zero_grad()
            loss_fn(model, batch).backward()
            optimizer.step()

    given = {
        "debugkit": debugkit,
        "model": model,
        "batch": batch,
        "loss_fn": loss_fn,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "train": train,
    }
    exec(code, given)
    assert given["report"].ok
    assert given["run"].report.ok
    assert given["run"].steps == 3
