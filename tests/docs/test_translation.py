"""The Korean pages say what the English ones say, and what the site adds to a page is in the page's language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import polib
import pytest

from docs_modules import DOCS, KOREAN, load
from labs.capstones.capstone import all_capstones
from labs.grading.catalog import all_labs

TRANSLATION, BLOCKS, LANGUAGE, TABLES = load("_translation"), load("_page_blocks"), load("_language"), load("_tables")
HANGUL, LETTER = re.compile("[가-힣]"), re.compile("[A-Za-z가-힣]")
LEAST_HANGUL = 0.3
"""Share of a page's letters outside code. In a list of rules, whose names stay English, it is a third."""
CODE_SPAN = re.compile(r"`[^`]+`")
PLACEHOLDER = re.compile(r"\{\w+\}")
INSTEAD = {
    "피처": "특징",
    "(eval|train|훈련) ?(모드|mode)": "평가 모드, 학습 모드",
    "동결": "고정",
    "해답|제공된 (수정|답안)": "모범 답안",
    "눈가림|땜빵": "땜질",
    "(?<!그래디언트 )체크포인팅(?!하|해)": "그래디언트 체크포인팅",
    "매개 ?변수": "파라미터",
    "최적화기": "옵티마이저",
    "크로스 엔트로피": "교차 엔트로피",
    "미세 ?조정": "파인튜닝",
    "업데이트": "갱신",
    "라벨": "레이블",
    "노이즈": "잡음",
    "에러": "오류",
    "에포크": "에폭",
    "스타터": "시작 코드",
    "워크스페이스": "작업 폴더",
    "뮤턴트": "변이",
    "탐지기": "검출기",
    "(?<!가상 )머신": "컴퓨터",
    "십시오": "세요",
    "형상": "형태",
    r"형태\(shape\)": "형태",
    "사전학습": "사전 학습",
    "(?<![A-Za-z0-9])[0-9]+ 스텝": "N스텝",
    r"[0-9] %(?=[가-힣])": "N%",
    "면 끝입니다": "완료입니다",
}
"""Words that the Korean texts do not use, and the term of the glossary or of the other pages."""
LESSON_LINK = re.compile(r"\[(?:Lab |랩 )?(\d\d) ([^\]]+)\]\([^)]*?\d\d_\w+\.md\)")


def korean() -> list[Path]:
    return sorted(DOCS.rglob(f"*{KOREAN}"))


def test_every_page_has_its_translation_and_no_other_page_has_one() -> None:
    translated = {TRANSLATION.translation_of(page) for page in TRANSLATION.pages()}
    missing = sorted(str(page.relative_to(DOCS)) for page in translated - {*korean()})
    assert not missing, (
        f"without a translation: {', '.join(missing)}; `python docs/_translation.py todo` shows its text"
    )
    assert {*korean()} == translated, "these are shown in English on the Korean site: NOT_TRANSLATED"


def test_every_translation_holds() -> None:
    found = [f"{page.relative_to(DOCS)}: {problem}" for page in korean() for problem in TRANSLATION.problems(page)]
    assert not found, "`python docs/_translation.py todo PAGE` shows what is to be translated:\n" + "\n".join(found)


def test_every_page_is_mostly_hangul() -> None:
    for page in korean():
        text = " ".join(prose(page.read_text(encoding="utf-8")))
        share = len(HANGUL.findall(text)) / len(LETTER.findall(text))
        assert share > LEAST_HANGUL, f"{page.relative_to(DOCS)}: {share:.0%} of the letters are Hangul"


def prose(text: str) -> Iterator[str]:
    for block in BLOCKS.blocks(text):
        if block.translatable or (HANGUL.search(block.text) and not block.fenced):
            yield re.sub(r"\]\([^)]*\)|<[^>]+>|\{[^}]*\}", "", CODE_SPAN.sub("", block.text))


@pytest.fixture(scope="module")
def korean_texts() -> list[tuple[str, str]]:
    """Where a text is, and the text without its code: pages, both catalogues, and the site's description."""
    texts = [(page.relative_to(DOCS).as_posix(), text) for page in korean() for text in prose(page.read_text("utf-8"))]
    for catalogue in (LANGUAGE.CATALOGUE, LANGUAGE.LABS_CATALOGUE):
        texts += [(catalogue.name, CODE_SPAN.sub("", entry.msgstr)) for entry in polib.pofile(str(catalogue))]
    return [*texts, ("mkdocs.yml", (DOCS.parent / "mkdocs.yml").read_text("utf-8"))]


@pytest.mark.parametrize(("words", "instead"), INSTEAD.items())
def test_the_korean_texts_use_one_word_for_one_thing(
    korean_texts: list[tuple[str, str]], words: str, instead: str
) -> None:
    found = [f"{where}: {text.strip()[:80]}" for where, text in korean_texts if re.search(words, text)]
    assert not found, f"the term is {instead}:\n" + "\n".join(found)


def test_a_lesson_has_one_korean_title_wherever_it_is_named() -> None:
    with LANGUAGE.spoken(LANGUAGE.KOREAN):
        titles = {lab.id: LANGUAGE.title_of(lab.lesson, lab.title) for lab in all_labs()}
    for page in korean():
        for number, title in LESSON_LINK.findall(page.read_text(encoding="utf-8")):
            assert title == titles[number], f"{page.relative_to(DOCS)}: lesson {number} is {titles[number]!r}"


def test_the_command_line_names_a_lesson_as_its_page_does() -> None:
    if not LANGUAGE.LABS_CATALOGUE.exists():
        pytest.skip("there is no catalogue of the labs")
    said = {entry.msgid: entry.msgstr for entry in polib.pofile(str(LANGUAGE.LABS_CATALOGUE))}
    with LANGUAGE.spoken(LANGUAGE.KOREAN):
        titles = {lab.title: LANGUAGE.title_of(lab.lesson, lab.title) for lab in all_labs()}
    different = {title: (page, said[title]) for title, page in titles.items() if said.get(title, page) != page}
    assert not different, f"English, the page's, the command line's: {different}"


def test_a_korean_title_is_a_name_and_no_sentence() -> None:
    said = {entry.msgid: entry.msgstr for entry in polib.pofile(str(LANGUAGE.LABS_CATALOGUE))}
    titles = [said[one.title] for one in (*all_labs(), *all_capstones())]
    assert not [title for title in titles if title.endswith(("다", "요", "니까"))]


def test_the_sites_texts_are_translated_and_no_other_text_is_in_the_catalogue() -> None:
    entries = polib.pofile(str(LANGUAGE.CATALOGUE))
    asked = LANGUAGE.sources()
    assert len(asked) > 200
    assert [entry.msgid for entry in entries] == asked, "run `python docs/_language.py`"
    for entry in entries:
        for kept in (CODE_SPAN, PLACEHOLDER, BLOCKS._LINK):
            assert sorted(kept.findall(entry.msgid)) == sorted(kept.findall(entry.msgstr)), entry.msgid


@pytest.mark.parametrize("catalogue", [LANGUAGE.CATALOGUE, LANGUAGE.LABS_CATALOGUE], ids=["site", "labs"])
def test_a_catalogue_has_no_entry_without_a_translation(catalogue: Path) -> None:
    if not catalogue.exists():
        pytest.skip(f"there is no {catalogue.name}")
    entries = polib.pofile(str(catalogue))
    assert not [entry.msgid for entry in entries if entry.fuzzy or entry.obsolete or not entry.msgstr]


def test_say_speaks_the_language_of_the_page_and_falls_back_to_english() -> None:
    assert LANGUAGE.say("{minutes} minutes", minutes=5) == "5 minutes"
    with LANGUAGE.spoken(LANGUAGE.KOREAN):
        assert LANGUAGE.say("{minutes} minutes", minutes=5) == "5분"
        assert LANGUAGE.say("A text of no catalogue.") == "A text of no catalogue."
    assert LANGUAGE.say("Rules") == "Rules"


def test_the_catalogue_is_renewed_from_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = tmp_path / "_ko.po"
    entries = polib.POFile()
    entries.extend([polib.POEntry(msgid="Rules", msgstr="규칙"), polib.POEntry(msgid="Said no more", msgstr="끝")])
    entries.save(str(catalogue))
    monkeypatch.setattr(LANGUAGE, "CATALOGUE", catalogue)
    assert LANGUAGE.update() == (len(LANGUAGE.sources()) - 1, 1)
    assert {entry.msgid: entry.msgstr for entry in polib.pofile(str(catalogue))}["Rules"] == "규칙"


def test_a_heading_that_the_site_adds_has_one_anchor_in_both_languages() -> None:
    blocks = []
    for language in (LANGUAGE.ENGLISH, LANGUAGE.KOREAN):
        with LANGUAGE.spoken(language):
            blocks.append(TABLES.symptom_index((), (), loud=False))
    assert "### The loss is NaN or Inf { #the-loss-is-nan-or-inf }" in blocks[0]
    assert "### 손실이 NaN이나 Inf입니다 { #the-loss-is-nan-or-inf }" in blocks[1]
