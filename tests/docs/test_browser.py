"""The site in a real browser: no errors, nothing wider than the screen, accessible, and usable with the keyboard.

Needs Chromium, and playwright and axe-playwright-python from the extra `dev`; skipped, with the reason, without them.
Here a sample of the pages is examined. `python tests/docs/examine_pages.py` examines all of them in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examine_pages import (
    DESK,
    PHONE,
    SCRIPT,
    SMALL,
    SMALLEST,
    SWITCHES,
    Examiner,
    axe_script,
    chromium,
    paths,
    sample,
    served,
    smallest_text,
)

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.extended]
EXTENDED_DEPENDS_ON = ("debugkit", "docs", "labs", "solutions", "tests/docs", "mkdocs.yml", "*.md")

LESSON, RULE = "lessons/actions/41_hovers_beside/", "debugkit/rules/dk305_batch_leak/"
OF_EACH_KIND = (
    "",
    "errors/",
    "symptoms/",
    "lessons/gradients/",
    LESSON,
    RULE,
    "debugkit/api/",
    "debugkit/compare/",
    "ko/",
)
OTHERS = 14
"""Pages that are examined beside those of each kind."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The built site, served."""
    with served(site) as address:
        yield address


@pytest.fixture
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    if (found := chromium()) is None:
        pytest.skip("there is no Chromium on the PATH")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=found, args=SWITCHES)
        yield opened
        opened.close()


@pytest.fixture
def examiner(browser: Any, address: str, site: Path) -> Examiner:
    """A tab in which page after page is examined."""
    if (axe := axe_script()) is None:
        pytest.skip("axe-playwright-python is not installed")
    return Examiner(browser, address, site, axe)


@pytest.fixture
def page(browser: Any, address: str) -> Any:
    """A desk's page, at the site's address."""
    context = browser.new_context(viewport=DESK, base_url=address, permissions=["clipboard-read", "clipboard-write"])
    return context.new_page()


def test_pages_have_no_errors_no_sideways_scrolling_no_small_text_and_no_barriers(
    examiner: Examiner, site: Path
) -> None:
    wrong = [
        one
        for path in {**dict.fromkeys(OF_EACH_KIND), **dict.fromkeys(sample(paths(site), OTHERS))}
        for one in examiner.wrong(path)
    ]
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
    cut = page.locator(".terminal code").evaluate("code => code.scrollWidth - code.clientWidth")
    assert cut <= 0, "a line of the terminal ends beside the screen"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_figure_is_on_a_small_phones_screen_with_text_that_can_be_read(
    browser: Any, address: str, site: Path, scheme: str
) -> None:
    page = browser.new_context(viewport=SMALL, base_url=address, color_scheme=scheme).new_page()
    lessons = [path for path in paths(site) if re.match(r"(ko/)?lessons/\w+/\d", path)]
    plots, wrong = 0, []
    for path in [one for one in lessons if scheme == "light" or one.startswith("ko/")]:
        for figure, left, right, width in pictures(page, path):
            if left < 0 or right > SMALL["width"]:
                wrong.append(f"{path} {figure}: from {left:.0f} to {right:.0f}")
            if figure.endswith(".svg"):
                plots += 1
                if (size := smallest_text(site / figure) * width) < SMALLEST - 0.01:
                    wrong.append(f"{path} {figure}: {size:.1f} pixels")
    assert plots > len(lessons) / 2
    assert not wrong, "\n".join(wrong)


def pictures(page: Any, path: str) -> list[tuple[str, float, float, float]]:
    """The pictures of a page: each one's file, left and right edge, and width."""
    opened(page, path)
    return page.evaluate("examine.pictures()")


def opened(page: Any, path: str) -> None:
    """Open a page and its folds."""
    page.goto(path)
    page.evaluate(SCRIPT)
    page.evaluate("examine.open()")


def test_a_desk_shows_the_wide_plots(page: Any) -> None:
    shown = {Path(figure).name: width for figure, _, _, width in pictures(page, "lessons/gradients/11_stale_cache/")}
    assert "11_drift.svg" in shown
    assert shown["11_drift.svg"] >= 564


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
        opened(page, path)
        wrong[path] = page.evaluate("examine.cutTables()")
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
