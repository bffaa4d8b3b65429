"""The tool for translations finds what a translation must keep, and loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs_modules import load
from edited_files import rewrite

TRANSLATION, BLOCKS = load("_translation"), load("_page_blocks")

PAGE = """---
title: Shapes
hide: [toc]
---

# Shapes

The loss is `NaN` in [lab 21](lessons/21.md) after 120 steps.

```python
loss.backward()
```

??? fix "The fix"

    Detach it.

- one thing here
- another thing here

| Name | Use |
|---|---|
| `a` | first of all |
"""
IN_KOREAN = {
    "title: Shapes": "title: 형태",
    "# Shapes": "# 형태",
    "The loss is `NaN` in [lab 21](lessons/21.md) after 120 steps.": "[랩 21](lessons/21.md)은 120스텝 뒤 `NaN`입니다.",
    '??? fix "The fix"': '??? fix "수정"',
    "    Detach it.": "    분리하세요.",
    "- one thing here\n- another thing here": "- 하나\n- 또 하나",
    "| Name | Use |\n|---|---|\n| `a` | first of all |": "| 이름 | 쓰임 |\n|---|---|\n| `a` | 첫째 |",
}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An English page with its translation, in a folder of its own."""
    monkeypatch.setattr(TRANSLATION, "DOCS", tmp_path)
    source = tmp_path / "page.md"
    source.write_text(PAGE, encoding="utf-8")
    assert fill(source, IN_KOREAN) == 0
    return source


def fill(source: Path, translations: dict[str, str]) -> int:
    sections = source.with_name("file.txt")
    sections.write_text(
        "".join(f"@@ {BLOCKS.Block(text, 1).hash}\n{said}\n\n" for text, said in translations.items()), "utf-8"
    )
    return TRANSLATION.main(["fill", str(sections), str(source)])


def problems(source: Path) -> str:
    return "\n".join(TRANSLATION.problems(TRANSLATION.translation_of(source)))


def test_a_filled_page_holds(page: Path) -> None:
    assert problems(page) == ""
    text = TRANSLATION.translation_of(page).read_text(encoding="utf-8")
    assert "# 형태 { #shapes }" in text
    assert "hide: [toc]" in text
    assert "loss.backward()" in text
    assert TRANSLATION.main(["check", str(page)]) == 0
    assert not list(TRANSLATION.todo([page]))


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("`NaN`", "NaN", "code: missing ['NaN']"),
        ("lessons/21.md", "lessons/22.md", "links: missing ['lessons/21.md'], added ['lessons/22.md']"),
        ("120스텝", "백 스텝", "numbers: missing ['120']"),
        ("loss.backward()", "loss.item()", "the code is not the English page's"),
        ("- 또 하나", "그리고", "a list of -· where the English page has a list of -· -·"),
        ("| `a` | 첫째 |", "| `a` | 첫째 | 둘째 |", "a table of 3, 3, 4 where the English page has a table of 3, 3, 3"),
        ("    분리하세요.", "분리하세요.", "a line is indented less"),
        ("# 형태", "## 형태", "a heading 2 where the English page has a heading 1"),
        ("#shapes", "#form", "anchors"),
        ("hide: [toc]", "hide: [navigation]", "the front matter is not the English page's"),
        ("title: 형태", 'title: "형태', "not YAML"),
        ("| 이름", "덧붙인 문단.\n\n| 이름", "blocks where page.md has"),
        ("[랩 21](lessons/21.md)은", "in [lab 21](lessons/21.md) the loss is not a number", "is not translated"),
    ],
)
def test_a_change_of_the_translation_is_found(page: Path, before: str, after: str, problem: str) -> None:
    translation = TRANSLATION.translation_of(page)
    rewrite(translation, before, after)
    assert problem in problems(page)
    assert TRANSLATION.main(["check", str(page)]) == 1


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("after 120 steps", "after 120 long steps", "line 8 of page.md is new or changed: The loss is `NaN`"),
        ("loss.backward()", "loss.mean().backward()", "line 10 of page.md is new or changed: ```python"),
        ("    Detach it.\n\n", "", "blocks of page.md were removed or moved"),
        ("title: Shapes", "title: Forms", "line 2 of page.md is new or changed: title: Forms"),
        ("hide: [toc]", "hide: []", "the front matter is not the English page's"),
    ],
)
def test_a_change_of_the_english_page_is_found_and_filled(page: Path, before: str, after: str, problem: str) -> None:
    rewrite(page, before, after)
    assert problem in problems(page)
    fill(
        page, {block.text: f"{block.text[:9]} 120 `NaN` [랩](lessons/21.md) 바뀜" for block in TRANSLATION.todo([page])}
    )
    assert problem not in problems(page)


def test_a_page_without_a_translation_and_a_translation_without_a_page_are_found(page: Path) -> None:
    translation = TRANSLATION.translation_of(page)
    assert TRANSLATION.pages() == [page]
    page.rename(page.with_name("other.md"))
    assert TRANSLATION.problems(translation) == ["there is no page.md"]
    translation.unlink()
    assert problems(page.with_name("other.md")) == "there is no other.ko.md"
    assert TRANSLATION.main(["check", str(page.with_name("other.md"))]) == 1


def test_a_block_without_a_translation_stays_english_and_is_not_stamped(page: Path) -> None:
    rewrite(page, "Detach it.", "Detach the state of the arm.")
    fill(page, {})
    text = TRANSLATION.translation_of(page).read_text(encoding="utf-8")
    assert "    Detach the state of the arm." in text
    assert "????????" in text
    assert "new or changed:" in problems(page)
    assert "is not translated" in problems(page)


def test_fill_keeps_a_page_whose_blocks_it_cannot_count(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    translation = TRANSLATION.translation_of(page)
    rewrite(translation, "    분리하세요.", "    분리하세요.\n\n    그리고 다시 측정하세요.")
    before = translation.read_text(encoding="utf-8")
    assert fill(page, {}) == 1
    assert translation.read_text(encoding="utf-8") == before
    assert "Undo the change" in capsys.readouterr().err


def test_fill_refuses_a_translation_that_is_not_one_block(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = TRANSLATION.translation_of(page).read_text(encoding="utf-8")
    assert fill(page, {"    Detach it.": "    분리하세요.\n\n    다시 측정하세요."}) == 1
    assert "one block" in capsys.readouterr().err
    assert TRANSLATION.translation_of(page).read_text(encoding="utf-8") == before


def test_fill_says_what_it_does_not_use(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fill(page, {"A sentence of no page.": "어느 쪽에도 없는 문장입니다."}) == 0
    assert BLOCKS.Block("A sentence of no page.", 1).hash in capsys.readouterr().err


def test_a_block_of_two_pages_is_translated_once(page: Path) -> None:
    other = page.with_name("other.md")
    other.write_text("# Shapes\n\nSome words of its own.\n", encoding="utf-8")
    assert [block.text for block in TRANSLATION.todo([other])] == ["Some words of its own."]


@pytest.mark.parametrize("arguments", [[], ["todo"], ["status", "page.md"], ["fill", "file.txt"], ["find", "page.md"]])
def test_a_wrong_command_line_prints_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert TRANSLATION.main(arguments) == 2
    assert "Usage" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["todo", "fill"])
def test_a_page_that_does_not_exist_is_named(page: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    other = page.with_name("other.md")
    assert TRANSLATION.main([verb, *([str(page)] if verb == "fill" else []), str(other)]) == 2
    assert f"There is no file {other}." in capsys.readouterr().err


def test_a_file_of_translations_that_does_not_exist_is_named(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = page.with_name("sections.txt")
    assert TRANSLATION.main(["fill", str(other), str(page)]) == 2
    assert f"There is no file {other}." in capsys.readouterr().err


def test_a_block_is_what_markdown_makes_of_it() -> None:
    text = "# A\n\npara\npara\n\n```sh\na\n\nb\n```\n\n!!! note\n\n    inside\n\n1. one\n2. two\n"
    kinds = [block.kind if not block.fenced else "fence" for block in BLOCKS.blocks(text)]
    assert kinds == ["heading 1", "paragraph 0", "fence", "fold !!! note", "paragraph 4", "list of 1.· 1.·"]


@pytest.mark.parametrize(
    "text", ["```sh\nls -l all\n```", "`only.code()`", "<div class='hero' markdown>", "<!-- x: y -->", "12.5"]
)
def test_what_has_no_words_is_not_translated(text: str) -> None:
    assert not BLOCKS.Block(text, 1).translatable
