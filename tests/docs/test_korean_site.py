"""The built Korean site: its own language, its own search, and the way to the English page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest

from docs_modules import load
from labs.grading.catalog import Lab, all_labs

EXTENDED_DEPENDS_ON = ("debugkit", "docs", "labs", "solutions", "tests/docs", "mkdocs.yml", "*.md")

TRANSLATION, LESSONS, LANGUAGE = load("_translation"), load("_lessons"), load("_language")
HOME = "https://vla-debug-lab.github.io/vla-debug-lab/"
HANGUL = re.compile("[가-힣]")
DETAILS = re.compile(r"<details\b.*?</details>", re.DOTALL)
SITE_SEARCH = Path(__file__).with_name("site_search.js")

of_each_lab = pytest.mark.parametrize("lab", all_labs(), ids=lambda lab: lab.id)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    """The text of every Korean page, by its address below `ko/`."""
    folder = site / "ko"
    return {
        page.parent.relative_to(folder).as_posix().removeprefix("."): page.read_text(encoding="utf-8")
        for page in folder.rglob("index.html")
    }


def index(site: Path, below: str = "") -> list[dict[str, str]]:
    return json.loads((site / below / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]


def test_each_page_is_marked_korean_and_an_english_text_in_it_english(site: Path, pages: dict[str, str]) -> None:
    english = [page.relative_to(TRANSLATION.DOCS) for page in TRANSLATION.pages()]
    translated = {path.with_suffix("").as_posix().removesuffix("index").strip("/") for path in english}
    for name, text in pages.items():
        assert '<html lang="ko"' in text, name
        assert ('<div lang="en">' in text) == (name not in translated), name
        assert ("영어로만 제공합니다" in text) == (name not in translated), name
    assert '<html lang="en"' in (site / "index.html").read_text(encoding="utf-8")


def test_the_switch_leads_to_the_same_page_and_back(site: Path, pages: dict[str, str]) -> None:
    link = re.compile(r'<a href="([^"]*)" hreflang="(\w\w)" class="md-select__link">')
    for name in pages:
        for folder in (site / "ko" / name, site / name):
            links = {language: to for to, language in link.findall((folder / "index.html").read_text(encoding="utf-8"))}
            assert (folder / links["en"]).resolve() == (site / name).resolve(), folder
            assert (folder / links["ko"]).resolve() == (site / "ko" / name).resolve(), folder


def test_navigation_and_theme_are_korean(pages: dict[str, str]) -> None:
    text = pages["start"]
    for said in ("어떤 증상이 보이나요?", "체크리스트", "용어집", "어두운 색으로", "저장소", "콘텐츠로 이동"):
        assert said in text, said
    tabs = re.search(r'<nav class="md-tabs".*?</nav>', text, re.DOTALL)
    assert tabs is not None
    titles = [" ".join(title.split()) for title in re.findall(r'class="md-tabs__link">(.*?)</a>', tabs[0], re.DOTALL)]
    assert titles
    assert not [title for title in titles if title != "debugkit" and not HANGUL.search(title)]


def test_the_search_of_a_language_has_the_pages_of_that_language(site: Path) -> None:
    english, korean = index(site), index(site, "ko")
    written = {entry["location"].split("#")[0] for entry in english}
    assert written == {entry["location"].split("#")[0] for entry in korean}
    for entry in english:
        if "glossary" not in entry["location"]:
            assert len(HANGUL.findall(entry["text"])) < 20, entry["location"]
    assert HANGUL.search(next(entry["text"] for entry in korean if entry["location"] == "start/"))
    base = re.search(r'"base": "([^"]*)"', (site / "ko" / "start" / "index.html").read_text(encoding="utf-8"))
    assert base is not None
    assert (site / "ko" / "start" / base[1] / "search" / "search_index.json").resolve().parent.parent == site / "ko"
    assert base[1].endswith("/"), "the theme looks for the index below this address"


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("블록 옆에서", "lessons/actions/41_hovers_beside/"),
        ("브로드캐스팅이 일어난다", "debugkit/rules/dk002_silent_broadcast/"),
        ("mat1 and mat2 shapes cannot be multiplied (4x3 and 5x6)", "errors/#mat1-and-mat2-shapes"),
        ("silent-broadcast", "debugkit/rules/dk002_silent_broadcast/"),
    ],
)
def test_a_korean_word_and_an_english_message_find_their_page(site: Path, query: str, page: str) -> None:
    found = searched(site, query)[query][:10]
    assert page in found, found


def test_a_particle_changes_nothing(site: Path) -> None:
    bare, *others = searched(site, "그래디언트", "그래디언트를", "그래디언트의").values()
    assert bare
    assert all(other == bare for other in others)


def searched(site: Path, *queries: str) -> dict[str, list[str]]:
    """What the Korean pages' search finds for each query."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the site's search is JavaScript")
    asked = subprocess.run(
        [node, SITE_SEARCH, site, "ko"], input=json.dumps(queries), capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout)


@of_each_lab
def test_nothing_open_names_the_fault(pages: dict[str, str], lab: Lab) -> None:
    article = re.search(r"<article.*?</article>", pages[lab.lesson], re.DOTALL)
    assert article is not None
    assert not [code for code in lab.rules if code in DETAILS.sub("", article[0])]
    with LANGUAGE.spoken(LANGUAGE.KOREAN):
        for anchor in LESSONS.FOLDED:
            title = re.escape(LESSONS.fold_title(anchor))
            assert re.search(rf'<h2 id="{anchor}".*?</h2>\s*<details[^>]*>\s*<summary>{title}', article[0])


@of_each_lab
def test_the_card_is_korean(pages: dict[str, str], lab: Lab) -> None:
    card = pages[lab.lesson].split('<div class="card">', 1)[1].split("</ol>", 1)[0]
    text = " ".join(re.sub(r"<[^>]+>", " ", card).split())
    assert f"시간 {lab.minutes}분" in text
    assert ("오류가 남" if lab.loudness == "loud" else "오류가 나지 않음") in text
    assert [f"lab {name} {lab.id}" for name in LESSONS.COMMANDS] == re.findall(r"<code>(lab .*?)</code>", card)


def test_folded_text_is_not_in_the_search(site: Path) -> None:
    texts = {entry["location"]: entry["text"] for entry in index(site, "ko")}
    for lab in all_labs():
        for anchor in ["diagnose", "fix", *LESSONS.FOLDED]:
            assert not texts[f"{lab.lesson}/#{anchor}"].strip(), f"{lab.id} {anchor}"


def test_both_languages_are_in_the_sitemap_and_the_rest_of_the_root_is_english(site: Path) -> None:
    sitemap = (site / "sitemap.xml").read_text(encoding="utf-8")
    for address in (HOME, f"{HOME}ko/", f"{HOME}start/", f"{HOME}ko/start/"):
        assert f"<loc>{address}</loc>" in sitemap
    missing = (site / "404.html").read_text(encoding="utf-8")
    assert '<html lang="en"' in missing
    assert "찾으시는 페이지가 없습니다" in missing
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    assert b" ko/" not in zlib.decompress(inventory)
