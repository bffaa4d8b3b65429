"""The examination of pages in a browser finds what is wrong on the screen and in the palette where it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from examine_pages import SWITCHES, Examiner, axe_script, chromium, sample, served

EXTENDED_DEPENDS_ON = ("tests/docs",)

PAGE = """<!doctype html><html lang="en"><head><title>A page</title><link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width"><style>{style}</style></head>
<body data-md-color-scheme="default">
<main class="md-typeset"><article><h1>A title</h1>{article}</article></main></body></html>"""
PALE_IN_THE_DARK = "[data-md-color-scheme=slate] { background: #222 } [data-md-color-scheme=slate] p { color: #444 }"
TABLE = '<table><tr><td style="min-width: 700px">A cell.</td></tr></table>'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of pages that have one mistake each, and one without."""
    pages = {
        "good": ("", "<p>A text.</p>"),
        "wide": ("", '<p style="width: 380px">A text.</p>'),
        "pale": (PALE_IN_THE_DARK, "<p>A text.</p>"),
        "small": ("", '<p style="font-size: 10px">A text.</p><p style="font-size: 10px">A text.</p>'),
        "unnamed": ("", "<button></button>"),
        "broken": ("", "<script>noSuchFunction()</script>"),
        "folded": ("", "<details><summary>More</summary><button></button></details>"),
        "table": ("", f'<div class="scroll" style="overflow-x: auto" tabindex="0">{TABLE}</div>'),
    }
    for name, (style, article) in pages.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(PAGE.format(style=style, article=article), encoding="utf-8")
    return tmp_path


@pytest.fixture
def examiner(site: Path) -> Iterator[Examiner]:
    """A tab of Chromium with that site."""
    found, axe = chromium(), axe_script()
    if found is None or axe is None:
        pytest.skip("Chromium or axe-playwright-python is not installed")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with served(site) as address, api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=SWITCHES)
        yield Examiner(browser, address, site, axe)
        browser.close()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.extended
def test_what_is_wrong_is_found_where_it_is(examiner: Examiner) -> None:
    assert examiner.wrong("good/") == []
    [wide, *others] = examiner.wrong("wide/")
    assert "360 pixels: " in wide
    assert "wider than the screen" in wide
    assert others == []
    assert ["dark: color-contrast" in one for one in examiner.wrong("pale/")] == [True, True]
    assert [one.partition(" (")[2] for one in examiner.wrong("small/")] == ["2 times)"] * 3
    assert all("button-name (critical)" in one for one in examiner.wrong("unnamed/"))
    assert ["noSuchFunction" in one for one in examiner.wrong("broken/")] == [True]
    assert ["button-name (critical)" in one for one in examiner.wrong("folded/")] == [True, True]
    assert [one.split()[1] for one in examiner.wrong("table/") if "column is off the screen" in one] == ["390", "360"]


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.extended
def test_a_combination_of_colours_is_reported_on_the_first_page_that_has_it(examiner: Examiner) -> None:
    assert examiner.wrong("good/") == []
    assert len(examiner.wrong("pale/")) == 2
    assert examiner.wrong("pale/") == []


def test_a_sample_is_even_and_has_no_page_twice() -> None:
    every = [str(number) for number in range(10)]
    assert sample(every, 4) == ["0", "2", "5", "7"]
    assert sample(every, 20) == every
