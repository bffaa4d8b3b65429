"""The built site: every link has a target, and no page loads anything from another server."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

EXTENDED_DEPENDS_ON = ("debugkit", "docs", "labs", "solutions", "tests/docs", "mkdocs.yml", "*.md")

# What a browser fetches by itself; `a` and `link rel=canonical` are only followed by people.
_FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
}
_NOT_FETCHED_RELATIONS = {"canonical", "alternate", "next", "prev", "author", "license"}


class _Page(HTMLParser):
    """What one page links to, fetches, and can be linked to at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.classes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.classes.update(given.get("class", "").split())
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in _FETCHED and _FETCHED[tag] in given:
            self.fetched.append(given[_FETCHED[tag]])
        if tag == "link" and not _NOT_FETCHED_RELATIONS & set(given.get("rel", "").split()):
            self.fetched.append(given.get("href", ""))


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, _Page]:
    """Every built page but the one for addresses that do not exist, by its path below the site."""
    return {
        page.relative_to(site).as_posix(): _Page(page.read_text(encoding="utf-8"))
        for page in sorted(site.rglob("*.html"))
        if page.name != "404.html"
    }


def test_every_internal_link_has_a_page_and_an_anchor(site: Path, pages: dict[str, _Page]) -> None:
    assert len(pages) > 20
    broken = []
    for name, page in pages.items():
        for link in [*page.links, *page.fetched]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (site / name).parent / unquote(parts.path) if parts.path else site / name
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                broken.append(f"{name}: {link}")
            elif parts.fragment and target.suffix == ".html":
                there = pages.get(target.resolve().relative_to(site.resolve()).as_posix())
                if there and unquote(parts.fragment) not in there.anchors:
                    broken.append(f"{name}: {link} (no such anchor)")
    assert not broken, "broken links:\n" + "\n".join(broken)


def test_no_page_fetches_anything_from_another_server(pages: dict[str, _Page]) -> None:
    assert all(page.fetched for page in pages.values()), "every page loads at least its style sheet"
    outside = [
        f"{name}: {address}"
        for name, page in pages.items()
        for address in page.fetched
        if urlsplit(address).netloc or urlsplit(address).scheme not in ("", "data")
    ]
    assert not outside, "fetched from elsewhere:\n" + "\n".join(outside)


def test_no_style_sheet_fetches_anything_from_another_server(site: Path) -> None:
    sheets = sorted(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        outside = re.findall(
            r"(?:url\(\s*['\"]?|@import\s+['\"])(?:https?:)?//[^)'\"]+", sheet.read_text(encoding="utf-8")
        )
        assert not outside, f"{sheet.name} fetches {outside}"


def test_no_page_uses_what_the_theme_would_load_from_elsewhere(root: Path, site: Path, pages: dict[str, _Page]) -> None:
    # The theme's script would fetch mermaid, and a repository's stars, where a page or the settings use them.
    assert not [name for name, page in pages.items() if "mermaid" in page.classes]
    for page in (site / "index.html", site / "lessons" / "index.html"):
        assert 'data-md-component="source"' not in page.read_text(encoding="utf-8"), "it fetches a repository's stars"
    settings = (root / "mkdocs.yml").read_text(encoding="utf-8")
    assert not re.search(r"^(repo_url|extra_javascript):", settings, re.MULTILINE)
    assert re.search(r"^ +font: false\b", settings, re.MULTILINE)


def test_every_page_has_a_title_and_a_description_of_its_own(site: Path, pages: dict[str, _Page]) -> None:
    described: dict[str, str] = {}
    for name, page in pages.items():
        if "only-english" in page.classes:
            continue  # a Korean reader's copy of an English page
        head = (site / name).read_text(encoding="utf-8").split("</head>", 1)[0]
        found = dict(re.findall(r'<meta (?:name|property)="(description|og:\w+)" content="([^"]*)"', head))
        [title] = re.findall(r"<title>(.*?)</title>", head)
        home = name in ("index.html", "ko/index.html")
        whole = "VLA 디버깅 랩" if name.startswith("ko/") else "VLA Debugging Lab"
        assert title in (found["og:title"], f"{found['og:title']} - {whole}"), name
        assert home or title.endswith(f" - {whole}"), name
        assert (found["og:type"] == "website") is home, name
        assert found["og:description"] == found["description"], name
        assert found["og:url"].startswith("https://"), name
        shortest = 15 if name.startswith("ko/") else 30  # Korean says it in fewer letters
        assert shortest <= len(found["description"]) <= 240, f"{name}: {found['description']!r}"
        assert "{{" not in found["description"], name
        assert found["description"] not in described, (
            f"{name} and {described[found['description']]} have one description"
        )
        described[found["description"]] = name


def test_underscore_files_and_snippets_are_not_published(site: Path) -> None:
    published = [path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()]
    ours = [path for path in published if path != "assets/_mkdocstrings.css"]
    assert not [path for path in ours if re.search(r"(^|/)_|^(snippets|rule_examples)/|\.(py|toml)$", path)]


def test_every_page_can_be_reached_from_the_home_page(pages: dict[str, _Page]) -> None:
    reached, waiting = set(), ["index.html"]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in pages:
            continue
        reached.add(name)
        for link in pages[name].links:
            parts = urlsplit(link)
            if not parts.scheme and not parts.netloc and parts.path:
                path = os.path.normpath(os.path.join(os.path.dirname(name), unquote(parts.path)))  # noqa: PTH118, PTH120
                waiting += [path, os.path.normpath(f"{path}/index.html")]
    assert reached == set(pages), f"no link leads to {sorted(set(pages) - reached)}"


def test_the_site_is_where_findings_and_lessons_point(root: Path) -> None:
    from debugkit.rule import all_rules
    from labs.grading.catalog import all_labs
    from labs.learner.lesson import lesson_address

    class Loader(yaml.SafeLoader):
        """mkdocs.yml names Python objects, which are not needed here."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    home = yaml.load((root / "mkdocs.yml").read_text(encoding="utf-8"), Loader=Loader)["site_url"]
    docs = root / "docs"
    for rule in all_rules():
        assert rule.url.startswith(home), f"{rule.url} is not on {home}"
        assert (docs / f"{rule.url.removeprefix(home).rstrip('/')}.md").exists(), f"{rule.url} has no page"
    for lab in all_labs():
        assert lesson_address(lab) == f"{home}{lab.lesson}/"
