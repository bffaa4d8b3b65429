"""The site in a real browser: no errors, nothing wider than the screen, accessible, and usable with the keyboard.

Needs Chromium, and playwright and axe-playwright-python from the extra `dev`; skipped, with the reason, without them.
By default a page is examined in one of four modes by turns. `SITE_EVERY_MODE=1` examines every page in all of them.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.extended]
EXTENDED_DEPENDS_ON = ("debugkit", "docs", "labs", "solutions", "tests/docs", "mkdocs.yml", "*.md")

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
MODES = {
    "desk-light": (DESK, "light"),
    "desk-dark": (DESK, "dark"),
    "phone-light": (SMALL, "light"),
    "phone-dark": (SMALL, "dark"),
}
LESSON, RULE = "lessons/actions/41_hovers_beside/", "debugkit/rules/dk305_batch_leak/"
EVERY_MODE = ("", "start/", "symptoms/", "lessons/", LESSON, "debugkit/compare/", "ko/", f"ko/{LESSON}")
"""Pages of each kind: they are examined in all four modes."""
OF_THE_RULES = 8
"""The rules' pages have one form: one page of so many is examined."""
OF_THE_KOREAN = 24
"""The Korean pages have the English ones' form: one page of so many is examined in a mode."""
SMALLEST = 11
"""Pixels."""
SERIOUS = ("serious", "critical")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The built site, served."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("there is no Chromium on the PATH")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=found, args=SWITCHES)
        yield chromium
        chromium.close()


@pytest.fixture
def axe() -> str:
    """The script of axe-core."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe-playwright-python is not installed")
    return Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def page(browser: Any, address: str) -> Any:
    """A desk's page, at the site's address."""
    context = browser.new_context(viewport=DESK, base_url=address, permissions=["clipboard-read", "clipboard-write"])
    return context.new_page()


def paths(site: Path) -> list[str]:
    """The address of every page below the site's."""
    found = sorted(path.parent.relative_to(site).as_posix() + "/" for path in site.rglob("index.html"))
    return ["" if path == "./" else path for path in found]


def examined(site: Path, mode: int) -> list[str]:
    """The pages that are examined in a mode."""
    every = paths(site)
    if os.environ.get("SITE_EVERY_MODE"):
        return every
    korean = [path for path in every if path.startswith("ko/")]
    rules = [path for path in every if re.match(r"debugkit/rules/dk\d", path)]
    others = [path for path in every if path not in rules and path not in korean]
    return [
        *EVERY_MODE,
        *others[mode :: len(MODES)],
        *rules[mode * OF_THE_RULES // 4 :: OF_THE_RULES * 2],
        *korean[mode * OF_THE_KOREAN // 4 :: OF_THE_KOREAN],
    ]


@pytest.mark.parametrize("mode", MODES)
def test_pages_have_no_errors_no_sideways_scrolling_and_no_barriers(
    browser: Any, address: str, site: Path, axe: str, mode: str
) -> None:
    size, scheme = MODES[mode]
    context = browser.new_context(viewport=size, base_url=address, color_scheme=scheme, reduced_motion="reduce")
    wrong = []
    for path in dict.fromkeys(examined(site, list(MODES).index(mode))):
        page = context.new_page()
        errors: list[str] = []
        page.on("console", lambda said, errors=errors: errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
        page.on("requestfailed", lambda request, errors=errors: errors.append(f"not loaded: {request.url}"))
        page.goto(path)
        page.wait_for_selector(".md-typeset h1")
        if (wider := page.evaluate("document.documentElement.scrollWidth - innerWidth")) > 0:
            wrong.append(f"{path} is {wider} pixels wider than the screen")
        page.evaluate("document.querySelectorAll('details').forEach(fold => (fold.open = true))")
        page.evaluate(axe)
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
        only = "{runOnly: tags, resultTypes: ['violations'], selectors: false, iframes: false}"
        found = page.evaluate(f"tags => axe.run({only})", tags)["violations"]
        wrong += [f"{path} {one['id']}: {one['nodes'][0]['html'][:120]}" for one in found if one["impact"] in SERIOUS]
        wrong += [f"{path} {error}" for error in errors]
        page.close()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("home", ["", "ko/"])
def test_the_first_screen_of_the_home_page_has_what_a_visitor_needs(
    browser: Any, address: str, size: Any, home: str
) -> None:
    page = browser.new_context(viewport=size, base_url=address).new_page()
    page.goto(home)
    wanted = {
        "name": "h1",
        "what it is": ".lead",
        "install line": ".hero .language-sh pre",
        "terminal": ".terminal pre",
        "last door": ".doors li:nth-child(3)",
        "language": ".md-header .md-select button",
    }
    if size is DESK:
        wanted["repository"] = ".md-header a.md-source"
    for what, selector in wanted.items():
        box = page.locator(selector).first.bounding_box()
        assert box is not None, f"{what} is not shown"
        assert box["y"] >= 0, what
        assert box["y"] + box["height"] <= size["height"], f"{what} ends below the first screen"


TOO_SMALL = """smallest => [...document.querySelectorAll("article *")]
  .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) && e.offsetParent)
  .filter(e => parseFloat(getComputedStyle(e).fontSize) < smallest)
  .map(e => `${getComputedStyle(e).fontSize} ${e.textContent.trim().slice(0, 40)}`)"""
PICTURES = """async () => {
  document.querySelectorAll("details").forEach(fold => (fold.open = true));
  const shown = [...document.querySelectorAll("figure img")].filter(e => e.offsetParent);
  shown.forEach(e => (e.loading = "eager"));
  await Promise.all(shown.map(e => e.decode()));
  return shown.map(e => [new URL(e.currentSrc).pathname, e.getBoundingClientRect()])
    .map(([path, box]) => [path.slice(1), box.left, box.right, box.width]);
}"""


@pytest.mark.parametrize("path", ["", LESSON, RULE, f"ko/{LESSON}"])
def test_no_text_is_too_small_on_a_small_phone(browser: Any, address: str, path: str) -> None:
    page = browser.new_context(viewport=SMALL, base_url=address).new_page()
    page.goto(path)
    page.evaluate("document.querySelectorAll('details').forEach(fold => (fold.open = true))")
    assert page.evaluate(TOO_SMALL, SMALLEST) == []


@functools.cache
def smallest_text(figure: Path) -> float:
    """The size of a figure's smallest text as a share of the figure's width: its letters are paths of 100 units."""
    drawn = figure.read_text(encoding="utf-8")
    inside = [1.0, *(float(part) for part in re.findall(r"<use [^>]*scale\(([\d.]+)\)", drawn))]
    sizes = [100 * float(scale) for scale in re.findall(r"scale\(([\d.]+) -", drawn)]
    assert sizes, f"{figure.name} has no text"
    return min(sizes) * min(inside) / float(re.search(r'viewBox="0 0 ([\d.]+)', drawn)[1])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_figure_is_on_a_small_phones_screen_with_text_that_can_be_read(
    browser: Any, address: str, site: Path, scheme: str
) -> None:
    page = browser.new_context(viewport=SMALL, base_url=address, color_scheme=scheme).new_page()
    lessons = [path for path in paths(site) if re.match(r"(ko/)?lessons/\w+/\d", path)]
    plots, wrong = 0, []
    for path in [one for one in lessons if scheme == "light" or one.startswith("ko/")]:
        page.goto(path)
        for figure, left, right, width in page.evaluate(PICTURES):
            if left < 0 or right > SMALL["width"]:
                wrong.append(f"{path} {figure}: from {left:.0f} to {right:.0f}")
            if figure.endswith(".svg"):
                plots += 1
                if (size := smallest_text(site / figure) * width) < SMALLEST - 0.01:
                    wrong.append(f"{path} {figure}: {size:.1f} pixels")
    assert plots > len(lessons) / 2
    assert not wrong, "\n".join(wrong)


def test_a_desk_shows_the_wide_plots(page: Any) -> None:
    page.goto("lessons/gradients/11_stale_cache/")
    shown = {Path(figure).name: width for figure, _, _, width in page.evaluate(PICTURES)}
    assert "11_drift.svg" in shown
    assert shown["11_drift.svg"] >= 564


OFF_THE_SCREEN = """() => [...document.querySelectorAll(".scroll:has(> table)")].filter(e => e.offsetParent)
  .filter(e => e.scrollWidth > e.clientWidth + 4 || [...e.querySelectorAll("td")].some(
    cell => cell.offsetParent && cell.getBoundingClientRect().right > innerWidth + 1))
  .map(e => `${e.scrollWidth} in ${e.clientWidth}: ${e.textContent.trim().slice(0, 60)}`)"""
TABLES = (
    "debugkit/compare/",
    "debugkit/hydra/",
    "debugkit/doctor/",
    "debugkit/distributed/",
    "debugkit/accuracy/",
    "debugkit/third_party/",
    "debugkit/injection/",
    "guides/hangs/",
    "guides/nan/",
    "grading/",
    "lessons/shapes/01_one_robot_only/",
    "lessons/shapes/07_lens_cap_on/",
    "lessons/loop/53_same_frames/",
    "ko/guides/hangs/",
    "ko/debugkit/doctor/",
    "ko/debugkit/distributed/",
    "ko/lessons/numerics/25_fine_until_it_trains/",
)
"""Pages with a wide table."""


@pytest.mark.parametrize("size", [DESK, SMALL], ids=["desk", "phone"])
def test_every_column_of_a_table_is_on_the_screen(browser: Any, address: str, size: Any) -> None:
    page = browser.new_context(viewport=size, base_url=address).new_page()
    wrong = {}
    for path in TABLES:
        page.goto(path)
        page.evaluate("document.querySelectorAll('details').forEach(fold => (fold.open = true))")
        wrong[path] = page.evaluate(OFF_THE_SCREEN)
    assert not any(wrong.values()), {path: tables for path, tables in wrong.items() if tables}


def test_both_panels_of_a_film_are_on_a_small_phones_screen(browser: Any, address: str) -> None:
    page = browser.new_context(viewport=SMALL, base_url=address).new_page()
    page.goto("lessons/actions/43_works_alone/")
    panels = page.locator("figure img[src$='_rollout.gif']:visible")
    assert panels.count() == 2
    first, second = (panels.nth(at).bounding_box() for at in (0, 1))
    assert first["x"] + first["width"] <= SMALL["width"]
    assert first["width"] == second["width"] == 300, "a panel is smaller than its file: its text is, too"
    assert second["y"] >= first["y"] + first["height"]


def results(page: Any, query: str) -> list[str]:
    """The addresses that the search shows for a query."""
    page.keyboard.press("Escape")
    page.locator("body").click(position={"x": 5, "y": 5})
    page.keyboard.press("/")
    page.keyboard.type(query)
    page.wait_for_function("document.querySelector('.md-search-result__meta').textContent.match(/matching|No|일치/)")
    page.wait_for_timeout(300)
    return [link.get_attribute("href") for link in page.locator(".md-search-result__link").all()]


def test_the_search_is_used_with_the_keyboard(page: Any) -> None:
    page.goto("")
    found = results(page, "silent-broadcast")
    assert any("dk002_silent_broadcast" in address for address in found)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("dk002_silent_broadcast|rules"))


def test_the_search_does_not_show_what_is_folded(page: Any) -> None:
    page.goto("lessons/shapes/03_gripper_never_closes/")
    folded = page.locator("details.fix").inner_text() + page.locator("details.fix").text_content()
    assert "reshape_as" in folded
    assert not [address for address in results(page, "reshape_as") if "03_gripper" in address]


def test_a_fold_is_closed_until_a_link_or_a_key_opens_it(page: Any) -> None:
    lesson = "lessons/memory/63_not_one_frame/"
    page.goto(lesson)
    assert page.locator("article details[open]").count() == 0
    fold = page.locator("article details.detector")
    fold.locator("summary").focus()
    page.keyboard.press("Enter")
    assert fold.get_attribute("open") is not None
    page.goto("about:blank")
    page.goto(f"{lesson}#ways-to-a-smaller-step")
    page.wait_for_selector("details.detector[open]")
    assert page.locator("#ways-to-a-smaller-step").is_visible()
    assert page.locator("article details[open]").count() == 1


def test_a_copied_block_is_what_the_page_shows(page: Any) -> None:
    page.goto("start/")
    shown = page.locator(".language-sh pre code").first.text_content().strip()
    page.locator(".language-sh").first.hover()
    page.locator(".language-sh .md-code__button, .language-sh .md-clipboard").first.click()
    page.wait_for_timeout(200)
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == shown
    assert shown.startswith("git clone https://")


def test_every_tab_stop_can_be_seen_and_tables_are_among_them(page: Any) -> None:
    page.goto("debugkit/compare/")
    page.keyboard.press("Tab")
    assert "md-skip" in page.evaluate("document.activeElement.className")
    kinds = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        kind, outline = page.evaluate(
            "(() => { const e = document.activeElement; return [e.className, getComputedStyle(e).outlineStyle]; })()"
        )
        kinds.add(kind)
        if "scroll" in kind.split():
            assert outline != "none", "a focused table has no outline"
            break
    else:
        pytest.fail(f"no table was focused: {kinds}")


def test_the_two_programs_of_a_rule_are_chosen_with_the_keyboard(page: Any) -> None:
    page.goto("debugkit/rules/dk305_batch_leak/")
    assert page.get_by_text("wrong.py", exact=True).is_visible()
    page.locator(".tabbed-set > input").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_text("right.py", exact=True).is_visible()


@pytest.mark.parametrize("path", ["", RULE])
def test_the_language_switch_leads_to_the_same_page_and_back(page: Any, address: str, path: str) -> None:
    page.goto(path)
    for language, home in (("ko", "ko/"), ("en", "")):
        page.locator(".md-select button").hover()
        page.locator(f".md-select__link[hreflang={language}]").click()
        page.wait_for_url(f"{address}{home}{path}")
        assert page.locator("html").get_attribute("lang") == language


def test_the_search_of_a_korean_page_finds_korean_pages(page: Any, address: str) -> None:
    page.goto("ko/start/")
    found = results(page, "블록 옆에서")
    assert found
    assert all(one.startswith(f"{address}ko/") for one in found), found
    assert any("41_hovers_beside" in one for one in found), found
