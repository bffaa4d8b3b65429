"""Examine every page of the built site in a browser.

    python tests/docs/examine_pages.py [--site FOLDER] [--sample COUNT] [PART OF AN ADDRESS]...

Each page is loaded once, its folds are opened, and it is shown on a desk, a phone and a small phone, in light and in
dark colours. What is wrong is printed as it is found; the exit status is 1 if anything is. Without `--site` the site is
built first. Needs Chromium, playwright and axe-playwright-python. `tests/docs/test_browser.py` examines a sample.

The contrast of a text depends on its colour, its size and what is below it. axe-core examines each combination once for
each palette and screen, on the first page that has it. This makes the difference between minutes and hours.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

ROOT = Path(__file__).resolve().parents[2]
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESK, PHONE, SMALL = {"width": 1440, "height": 900}, {"width": 390, "height": 844}, {"width": 360, "height": 740}
PALETTES = {"light": "default", "dark": "slate"}
SMALLEST = 11
"""Pixels."""
SCRIPT = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")

_SERIOUS = ("serious", "critical")
_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
_OF_COLOUR = ["color-contrast", "link-in-text-block"]
_AROUND = [".md-header", ".md-tabs", ".md-sidebar--primary", ".md-footer"]
"""What the pages of a folder share: it is examined on the first of them."""
_EMPTY_INDEX = {"config": {"lang": ["en"], "separator": " ", "pipeline": [], "fields": {}}, "docs": []}
"""Instead of the site's, which every page loads and indexes: that takes longer than everything else."""
_STILL = "* { transition: none !important; animation: none !important; scroll-behavior: auto !important; }"


def main() -> int:
    """Examine the pages and print what is wrong."""
    arguments = argparse.ArgumentParser(description="Examine every page of the built site in a browser.")
    arguments.add_argument("--site", type=Path, help="a built site; it is built first without this")
    arguments.add_argument("--sample", type=int, help="only so many pages, evenly from all of them")
    arguments.add_argument("parts", nargs="*", help="only the pages with one of these in their address")
    asked = arguments.parse_args()
    if chromium() is None or axe_script() is None:
        typer.echo("This needs Chromium on the PATH, and playwright and axe-playwright-python.", err=True)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        site = asked.site or Path(folder, "site")
        if not asked.site:
            subprocess.run(
                [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site], cwd=ROOT, check=True
            )
        every = [path for path in paths(site) if not asked.parts or any(part in path for part in asked.parts)]
        return 1 if _examined(sample(every, asked.sample or len(every)), site.resolve()) else 0


def _examined(every: Sequence[str], site: Path) -> int:
    """Examine and print; returns on how many pages something is wrong."""
    from playwright.sync_api import sync_playwright

    began, pages = time.monotonic(), 0
    with served(site) as address, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium(), args=SWITCHES)
        examiner = Examiner(browser, address, site, axe_script() or "")
        for at, path in enumerate(every, 1):
            wrong = examiner.wrong(path)
            pages += bool(wrong)
            for one in wrong:
                typer.echo(one)
            if at % 20 == 0:
                typer.echo(f"{at} of {len(every)} pages after {time.monotonic() - began:.0f} s", err=True)
        browser.close()
    typer.echo(f"{len(every)} pages in {time.monotonic() - began:.0f} s; something is wrong on {pages}.")
    return pages


class Examiner:
    """One tab of a browser, in which page after page is opened."""

    def __init__(self, browser: Any, address: str, site: Path, axe: str) -> None:
        self._site, self._axe = site, axe
        self._colours: dict[tuple[str, int], set[str]] = {}
        self._folders: set[str] = set()
        self._said: list[str] = []
        context = browser.new_context(viewport=DESK, base_url=address, color_scheme="light", reduced_motion="reduce")
        context.route("**/search_index.json", lambda route: route.fulfill(json=_EMPTY_INDEX))
        self._page = context.new_page()
        self._page.on("console", lambda said: self._said.append(said.text) if said.type == "error" else None)
        self._page.on("pageerror", lambda error: self._said.append(str(error)))
        self._page.on("requestfailed", self._failed)

    def wrong(self, path: str) -> list[str]:
        """What is wrong with a page."""
        self._said.clear()
        self._page.set_viewport_size(DESK)
        self._page.goto(path)
        self._page.wait_for_selector(".md-typeset h1")
        self._page.add_style_tag(content=_STILL)
        self._page.evaluate(self._axe)
        self._page.evaluate(SCRIPT)
        self._page.evaluate("examine.open()")
        without = [] if self._is_the_first_of_its_folder(path) else _AROUND
        wrong = []
        for size in (DESK, PHONE, SMALL):
            self._page.set_viewport_size(size)
            found = [
                *self._page.evaluate("examine.wider()"),
                *(f"a table's column is off the screen: {one}" for one in self._page.evaluate("examine.cutTables()")),
                *(f"small text: {one}" for one in self._page.evaluate("size => examine.smallTexts(size)", SMALLEST)),
                *self._pictures(size["width"]),
            ]
            if size is not SMALL:
                found += self._barriers(without)
                for palette in PALETTES:
                    found += [f"{palette}: {one}" for one in self._colourless(palette, size["width"])]
            wrong += [f"{size['width']} pixels: {one}" for one in found]
        return [
            f"/{path} {one}" + (f" ({count} times)" if count > 1 else "")
            for one, count in Counter(wrong + self._said).items()
        ]

    def _failed(self, request: Any) -> None:
        if "ERR_ABORTED" not in (request.failure or ""):  # by opening the next page
            self._said.append(f"not loaded: {request.url}")

    def _is_the_first_of_its_folder(self, path: str) -> bool:
        folder = path.rstrip("/").rpartition("/")[0]
        known = folder in self._folders
        self._folders.add(folder)
        return not known

    def _pictures(self, screen: int) -> list[str]:
        wrong = []
        for picture, left, right, width in self._page.evaluate("examine.pictures()"):
            if left < 0 or right > screen:
                wrong.append(f"{picture} is from {left:.0f} to {right:.0f}")
            if screen > PHONE["width"] or not picture.endswith(".svg"):
                continue  # a desk shows the wide plots, with exponents of 9 pixels
            if (size := smallest_text(self._site / picture) * width) < SMALLEST - 0.01:
                wrong.append(f"{picture} has a text of {size:.1f} pixels")
        return wrong

    def _barriers(self, without: list[str]) -> list[str]:
        given = [_TAGS, _OF_COLOUR, without]
        return _serious(self._page.evaluate("given => examine.barriers(...given)", given))

    def _colourless(self, palette: str, screen: int) -> list[str]:
        """Texts that are hard to read: of the combinations of colours that no page before has had."""
        known = self._colours.setdefault((palette, screen), set())
        self._page.evaluate("name => examine.palette(name)", PALETTES[palette])
        new, found = self._page.evaluate("given => examine.newColours(...given)", [list(known), _OF_COLOUR])
        known.update(new)
        return _serious(found)


def _serious(found: Sequence[tuple[str, str, Sequence[str]]]) -> list[str]:
    return [
        f"{rule} ({impact}), {len(nodes)} elements: {nodes[0]}" for rule, impact, nodes in found if impact in _SERIOUS
    ]


@functools.cache
def smallest_text(figure: Path) -> float:
    """The size of a figure's smallest text as a share of the figure's width: its letters are paths of 100 units."""
    drawn = figure.read_text(encoding="utf-8")
    inside = [1.0, *(float(part) for part in re.findall(r"<use [^>]*scale\(([\d.]+)\)", drawn))]
    sizes = [100 * float(scale) for scale in re.findall(r"scale\(([\d.]+) -", drawn)]
    assert sizes, f"{figure.name} has no text"
    return min(sizes) * min(inside) / float(re.search(r'viewBox="0 0 ([\d.]+)', drawn)[1])


def paths(site: Path) -> list[str]:
    """The address of every page below the site's."""
    found = sorted(path.parent.relative_to(site).as_posix() + "/" for path in site.rglob("index.html"))
    return ["" if path == "./" else path for path in found]


def sample(every: Sequence[str], count: int) -> list[str]:
    """So many pages, evenly from all of them."""
    count = min(count, len(every))
    return [every[at * len(every) // count] for at in range(count)]


def chromium() -> str | None:
    """The browser on the PATH."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def axe_script() -> str | None:
    """The script of axe-core."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")


@contextlib.contextmanager
def served(site: Path) -> Iterator[str]:
    """The address of a built site while it is served."""
    with _Server(("127.0.0.1", 0), functools.partial(_Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # the browser has gone to the next page
            super().handle_error(request, client_address)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    sys.exit(main())
