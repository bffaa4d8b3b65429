"""A sentence is translated by its English text, and a sentence that a template made by the template."""

from __future__ import annotations

from pathlib import Path

import pytest

from labs import locale
from labs.locale import LanguageError, language_of, message, translated
from labs.locale.particles import with_particles

CATALOGUE = """
msgid "The lesson"
msgstr "레슨"

msgid "the loss"
msgstr "손실"

#, python-brace-format
msgid "{what} is {value}."
msgstr "{what}은(는) {value}입니다."

#, python-brace-format
msgid "{what} is {value}, expected {other}."
msgstr "{what}: 측정값 {value}, 기대값 {other}."

#, python-brace-format
msgid "A dict {{}} has {count} keys."
msgstr "딕셔너리 {{}}에 키가 {count}개 있습니다."

#, python-brace-format
msgid "the error of {what}"
msgstr "{what}의 오차"

#, python-brace-format
msgid "the sum {of}"
msgstr "{of}의 합"

#, python-brace-format
msgid "of {count} frames with padding"
msgstr "패딩이 있는 {count}개 프레임"

#, fuzzy
msgid "An old sentence"
msgstr "옛 문장"
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    path = tmp_path / "ko.po"
    path.write_text(CATALOGUE, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("english", "korean"),
    [
        ("The lesson", "레슨"),
        ("the loss is 3.", "손실은 3입니다."),
        ("the loss is 3, expected 2.", "손실: 측정값 3, 기대값 2."),
        ("A dict {} has 4 keys.", "딕셔너리 {}에 키가 4개 있습니다."),
        ("{what} is {value}.", "{what}은(는) {value}입니다."),
        ("An old sentence", "An old sentence"),
        ("No entry has this", "No entry has this"),
        ("", ""),
    ],
)
def test_text_and_templates(catalogue: Path, english: str, korean: str) -> None:
    assert translated(english, "ko", catalogue) == korean
    assert translated(english, "en", catalogue) == english
    assert translated(english, catalogue=catalogue) == english


def test_english_reads_no_catalogue(tmp_path: Path) -> None:
    assert translated("The lesson", catalogue=tmp_path / "none.po") == "The lesson"
    assert message("{n} labs", n=3) == "3 labs"


@pytest.mark.parametrize(
    ("double", "chosen"),
    [
        ("손실을(를)", "손실을"),
        ("`loss`을(를)", "`loss`를"),
        ("레슨이(가)", "레슨이"),
        ("랩 03은(는)", "랩 03은"),
        ("파일(으)로", "파일로"),
        ("랩(으)로", "랩으로"),
        ("(으)로 시작", "(으)로 시작"),
    ],
)
def test_particles(double: str, chosen: str) -> None:
    assert with_particles(double) == chosen


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "C"}, "en"),
        ({"LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "kok_IN"}, "en"),
        ({"LANG": "ko_KR.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LC_MESSAGES": "ko_KR", "LANG": "C"}, "ko"),
        ({"LANG": "ko_KR.UTF-8", "LAB_LANG": "en"}, "en"),
        ({"LAB_LANG": "ko"}, "ko"),
    ],
)
def test_environment(environment: dict[str, str], language: str) -> None:
    assert language_of(environment) == language


def test_an_unknown_language_is_one_sentence() -> None:
    with pytest.raises(LanguageError, match=r"LAB_LANG is 'fr', but the languages are: en, ko\."):
        language_of({"LAB_LANG": "fr"})
    with pytest.raises(LanguageError, match=r"There is no language 'fr'\. The languages are: en, ko\."):
        locale.set_language("fr")


def test_a_longer_sentence_may_take_the_of_of_a_phrase_away(catalogue: Path) -> None:
    assert translated("the sum of 3 frames with padding", "ko", catalogue) == "패딩이 있는 3개 프레임의 합"
    assert translated("the error of 3 frames with padding", "ko", catalogue) == "패딩이 있는 3개 프레임의 오차"
    assert translated("3 frames without", "ko", catalogue) == "3 frames without"


def test_a_tuple_is_no_phrase(catalogue: Path) -> None:
    assert translated("(40, 40, 220) is missing", "ko", catalogue) == "(40, 40, 220) is missing"


def test_the_colour_of_a_block_in_a_sentence_is_korean() -> None:
    english = "red, green and blue of a red block that the left camera sees, in what the policy learns from,"
    assert translated(english, "ko") == "정책이 학습하는 것에서 왼쪽 카메라가 보는 빨간 블록의 빨강, 초록, 파랑 값"


def test_a_bug_of_lab_is_said_in_korean() -> None:
    english = "this is a bug in lab and not in your code (ValueError: x). The traceback is in x.txt; please report it."
    korean = translated(english, "ko")
    assert korean.startswith("코드의 문제가 아니라 lab의 버그입니다(ValueError: x). ")
    assert "x.txt에 있습니다" in korean
