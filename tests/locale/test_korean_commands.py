"""`lab` in Korean: the help of every command, messages, errors, and real refusals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from labs import cli
from labs.cli import console
from labs.cli.app import app
from labs.cli.in_language import with_subcommands
from labs.grading.grades import CheckResult, Grade
from labs.learner import graded_attempt
from labs.locale import ENGLISH, set_language

ENGLISH_WORDS = re.compile(r"\b(the|is|are|of|and|with|that|not|your|what|this|was)\b", re.IGNORECASE)


def lab(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("LAB_LANG", "LC_ALL", "LC_MESSAGES")}
    here = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-m", "labs.cli", *arguments],
        cwd=cwd,
        env={**clean, "LANG": "C.UTF-8", "PYTHONPATH": str(here), "COLUMNS": "80", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def commands() -> Iterator[list[str]]:
    from typer.main import get_command

    def below(command: object, path: list[str]) -> Iterator[list[str]]:
        yield path
        for name, one in getattr(command, "commands", {}).items():
            yield from below(one, [*path, name])

    yield from below(get_command(app), [])


def test_every_help_is_in_korean() -> None:
    """In one process: what `--help` prints is made of these texts."""
    for name, text in helps("200").items():
        assert "사용법:" in text, name
        assert "이 도움말을 출력하고 끝냅니다." in text, name
        assert not ENGLISH_WORDS.search(text), (name, ENGLISH_WORDS.search(text))


def test_no_line_of_a_help_loses_its_last_letter_in_a_narrow_terminal() -> None:
    for name, text in helps("80").items():
        assert " …" not in text, (name, text)


def helps(columns: str) -> dict[str, str]:
    """The Korean help of every command."""
    script = """
import contextlib, io, json, sys
from labs.cli.run_command import run_command
shown = {}
for path in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        run_command(["--lang", "ko", *path, "--help"])
    shown[" ".join(path)] = out.getvalue()
print(json.dumps(shown))
"""
    every = list(commands())
    assert len(every) > 20
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(every)],
        env={**os.environ, "COLUMNS": columns},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_no_help_is_left_out() -> None:
    from typer.main import get_command

    texts = [
        holder.help
        for command, options in with_subcommands(get_command(app))
        for holder in (command, *options)
        if getattr(holder, "help", None)
    ]
    assert "Show this message and exit." in texts


@pytest.mark.parametrize(
    ("environment", "korean"),
    [
        ({"LANG": "ko_KR.UTF-8"}, True),
        ({"LANG": "C"}, False),
        ({"LAB_LANG": "ko"}, True),
        ({"LANG": "ko_KR.UTF-8", "LAB_LANG": "en"}, False),
        ({"LANG": "ko_KR.UTF-8", "LC_ALL": "C.UTF-8"}, False),
    ],
)
def test_the_environment_chooses(tmp_path: Path, environment: dict[str, str], korean: bool) -> None:
    shown = lab("list", cwd=tmp_path, **environment).stdout
    assert ("닫히지 않는 그리퍼" in shown) is korean
    assert ("The gripper that never closes" in shown) is not korean


@pytest.mark.parametrize("arguments", [("--lang", "ko", "list"), ("list", "--lang=ko")])
def test_the_option_stands_before_or_after_the_command(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert "닫히지 않는 그리퍼" in lab(*arguments, cwd=tmp_path).stdout


def test_the_lesson_is_the_one_in_korean(tmp_path: Path) -> None:
    shown = lab("--lang", "ko", "open", "07", cwd=tmp_path).stdout
    assert "/ko/lessons/shapes/07_lens_cap_on/" in shown
    assert "07_lens_cap_on.ko.md" in shown
    assert "/ko/" not in lab("open", "07", cwd=tmp_path).stdout


def test_the_option_wins(tmp_path: Path) -> None:
    assert "The gripper that never closes" in lab("--lang", "en", "list", cwd=tmp_path, LAB_LANG="ko").stdout


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (("--lang", "fr", "list"), {}, "lab: There is no language 'fr'. The languages are: en, ko."),
        (("list", "--lang"), {}, "lab: There is no language ''. The languages are: en, ko."),
        (("list",), {"LAB_LANG": "fr"}, "lab: LAB_LANG is 'fr', but the languages are: en, ko."),
    ],
)
def test_an_unknown_language(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str], sentence: str
) -> None:
    done = lab(*arguments, cwd=tmp_path, **environment)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (2, "", sentence)


@pytest.mark.parametrize(
    "arguments",
    [
        ("open", "77"),
        ("open", "griper"),
        ("start",),
        ("nothing",),
        ("grade", "--nope"),
        ("grade", "--jobs", "0"),
        ("hint", "03", "more"),
        ("hint", "03"),
        ("grade",),
        ("grade", "03", "--all"),
        ("list", "--workspace", "nowhere"),
        ("class", "check", "nowhere"),
        ("progress", "--import", "nowhere"),
    ],
)
def test_errors_are_in_korean(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = lab(*arguments, cwd=tmp_path, LAB_LANG="ko")
    assert done.returncode == 2
    assert re.search("[가-힣]", done.stderr)
    said = done.stderr.replace(str(tmp_path), "")
    assert not ENGLISH_WORDS.search(said), said


def test_documents_stay_english(tmp_path: Path) -> None:
    shown = lab("list", "--json", cwd=tmp_path, LAB_LANG="ko").stdout
    assert "The gripper that never closes" in shown
    assert not re.search("[가-힣]", shown)
    failed = lab("grade", "77", "--json", cwd=tmp_path, LAB_LANG="ko")
    assert json.loads(failed.stdout)["error"].startswith("There is no lab 77.")


def test_what_start_copies_and_a_hint(tmp_path: Path) -> None:
    lab("init", ".", cwd=tmp_path, LAB_LANG="ko")
    for shown in (lab("start", "05", cwd=tmp_path, LAB_LANG="ko"), lab("hint", "05", cwd=tmp_path, LAB_LANG="ko")):
        assert shown.returncode == 0
        said = shown.stdout.replace(str(tmp_path), "")
        assert not ENGLISH_WORDS.search(said), said
    answers = (tmp_path / "lab05_blurry_vision" / "answers.toml").read_text(encoding="utf-8")
    assert "몇 개가" in answers
    assert not ENGLISH_WORDS.search(answers), answers


@pytest.fixture
def graded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first grade is a real one, and every later one repeats what it found."""
    real, found = graded_attempt.grade, []

    def grade(*arguments: Any, on_check: Callable[[CheckResult], None], **options: Any) -> Grade:
        if found:
            for check in found[0].checks:
                on_check(check)
        else:
            found.append(real(*arguments, on_check=on_check, **options))
        return found[0]

    monkeypatch.setattr(graded_attempt, "grade", grade)


@pytest.mark.slow
@pytest.mark.parametrize("number", ["05", "51"])
def test_a_refusal_is_in_korean(
    tmp_path: Path,
    number: str,
    graded_once: None,
    shared_server: None,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a wide terminal and on a narrow one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("labs.cli.run_command.translate_command", lambda _: None)  # it changes typer for good
    for columns in (80, 40):
        monkeypatch.setattr(console.out, "_width", columns)
        capfd.readouterr()
        try:
            assert cli.main(["--lang", "ko", "grade", number]) == 1
        finally:
            set_language(ENGLISH)
        shown = capfd.readouterr().out
        assert "요구 사항" in shown
        said = "\n".join(line for line in shown.splitlines() if "debugkit." not in line)
        assert not ENGLISH_WORDS.search(said), said
