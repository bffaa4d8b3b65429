"""Lessons as the site shows them: a card on top, answers folded, and nothing that is folded in the search."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs_modules import load
from labs.grading.catalog import Lab, all_labs
from labs.learner.paths import LearningPath, all_paths

EXTENDED_DEPENDS_ON = ("debugkit", "docs", "labs", "solutions", "tests/docs", "mkdocs.yml", "*.md")

LESSONS = load("_lessons")
next_in_path = load("_next_in_path").next_in_path
DETAILS = re.compile(r"<details\b.*?</details>", re.DOTALL)

of_each_lab = pytest.mark.parametrize("lab", all_labs(), ids=lambda lab: lab.id)


def article(site: Path, lab: Lab) -> str:
    html = (site / lab.lesson / "index.html").read_text(encoding="utf-8")
    return re.search(r"<article.*?</article>", html, re.DOTALL).group(0)  # type: ignore[union-attr]


@of_each_lab
def test_nothing_open_names_the_fault(site: Path, lab: Lab) -> None:
    shown = DETAILS.sub("", article(site, lab))
    assert not [code for code in lab.rules if code in shown]
    assert "lab diagnose" not in re.sub(r"<p>.*?</p>", "", shown, flags=re.DOTALL)
    for anchor in LESSONS.FOLDED:
        title = re.escape(LESSONS.fold_title(anchor))
        assert re.search(rf'<h2 id="{anchor}".*?</h2>\s*<details[^>]*>\s*<summary>{title}', article(site, lab))


@of_each_lab
def test_the_table_of_contents_does_not_name_the_fault(site: Path, lab: Lab) -> None:
    html = (site / lab.lesson / "index.html").read_text(encoding="utf-8")
    [inside] = re.findall(r"<details[^>]*class=\"detector.*?</details>", html, re.DOTALL)
    for anchor in re.findall(r'<h3[^>]* id="([\w-]+)"', inside):
        assert html.count(f'href="#{anchor}"') == 1, "the heading links to itself, and nothing else does"


def test_folded_text_is_not_in_the_search(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    texts = {entry["location"]: entry["text"] for entry in index["docs"]}
    for lab in all_labs():
        for anchor in ["diagnose", "fix", *LESSONS.FOLDED]:
            assert not texts[f"{lab.lesson}/#{anchor}"].strip(), f"{lab.id} {anchor}"
        assert texts[f"{lab.lesson}/#predict"].strip()
    assert not [location for location in texts if re.search(r"lessons/.*#ways-to-a-smaller", location)]


@of_each_lab
def test_the_card_says_what_lab_toml_says(site: Path, lab: Lab) -> None:
    card = article(site, lab).split('<div class="card">', 1)[1].split("</ol>", 1)[0]
    text = " ".join(re.sub(r"<[^>]+>", " ", card).split())
    assert f"{lab.difficulty} of 3, {'it raises' if lab.loudness == 'loud' else 'nothing raises'}" in text
    assert f"Time {lab.minutes} minutes" in text
    assert [f"lab {name} {lab.id}" for name in LESSONS.COMMANDS] == re.findall(r"<code>(lab .*?)</code>", card)
    builds_on = text.partition("Builds on ")[2].partition(" Edit ")[0]
    before, _, after = builds_on.partition(" Leads to ")
    assert re.findall(r"\b\d\d\b", before) == list(lab.prerequisites)
    assert re.findall(r"\b\d\d\b", after) == [one.id for one in all_labs() if lab.id in one.prerequisites]
    assert all(extra in text for extra in lab.extras)
    following = next_in_path(lab, all_labs(), all_paths().values())
    assert (f"Next lab {following.id} {following.title}" if following else "this is the last of its path") in text


@of_each_lab
def test_the_next_lab_is_on_a_path_and_can_be_done_then(lab: Lab) -> None:
    orders = [list(path.labs) for path in all_paths().values() if lab.id in path.labs]
    following = next_in_path(lab, all_labs(), all_paths().values())
    if following is None:
        existing = {one.id for one in all_labs()}
        assert not [order for order in orders if existing.intersection(order[order.index(lab.id) + 1 :])]
        return
    order = next(order for order in orders if following.id in order[order.index(lab.id) :])
    before = set(order[: order.index(following.id)])
    assert following.id not in lab.prerequisites
    assert before.issuperset(following.prerequisites), "what it builds on is earlier on the path"
    for number in order[order.index(lab.id) + 1 : order.index(following.id)]:
        passed_over = [one for one in all_labs() if one.id == number]
        assert not [one for one in passed_over if before.issuperset(one.prerequisites)], "it could have been done"


def test_a_lab_that_cannot_be_done_yet_is_passed_over() -> None:
    by_id = {lab.id: lab for lab in all_labs()}
    paths = [
        LearningPath("a", "b", ("91", "41")),
        LearningPath("c", "d", ("51", "83", "55")),
        LearningPath("e", "f", ("28", "51")),
    ]
    assert next_in_path(by_id["51"], all_labs(), paths) == by_id["55"], "83 builds on 72"
    assert next_in_path(by_id["28"], all_labs(), paths) is None, "28 builds on 51"
    assert next_in_path(by_id["41"], all_labs(), paths) is None
    assert next_in_path(by_id["12"], all_labs(), paths) is None, "it is on none of them"


def test_nested_folds_and_their_headings_are_left_out_of_the_search() -> None:
    html = '<h2 id="a">A</h2><details class="x"><summary>s</summary><h3 id="b">B</h3></details>'
    assert LESSONS.folded(html) == (
        '<h2 id="a">A</h2><details data-search-exclude class="x"><summary>s</summary>'
        '<h3 data-search-exclude id="b">B</h3></details>'
    )


def test_the_page_of_the_paths_has_each_path_in_its_order(site: Path) -> None:
    html = (site / "lessons" / "paths" / "index.html").read_text(encoding="utf-8")
    parts = re.split(r'<h2 id="([\w-]+)"', html.partition("<article")[2].partition("</article>")[0])
    shown = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(shown) == list(all_paths())
    for name, path in all_paths().items():
        labs = path.of(all_labs())
        [steps] = re.findall(r"<ol>(.*?)</ol>", shown[name], re.DOTALL)
        assert re.findall(r'<a href="[^"]*/(\d\d)_\w+/"', steps) == [lab.id for lab in labs]
        assert [int(minutes) for minutes in re.findall(r"(\d+)\xa0min", steps)] == [lab.minutes for lab in labs]
        assert [drawn.count("★") for drawn in re.findall("[★☆]{3}", steps)] == [lab.difficulty for lab in labs]
        assert f"lab next --path {name}" in re.sub(r"<[^>]+>", "", shown[name])


def test_the_home_page_and_the_lessons_lead_to_the_paths(site: Path) -> None:
    assert 'href="lessons/paths/"' in (site / "index.html").read_text(encoding="utf-8")
    lessons = (site / "lessons" / "index.html").read_text(encoding="utf-8")
    assert all(f'href="paths/#{name}"' in lessons for name in all_paths())
