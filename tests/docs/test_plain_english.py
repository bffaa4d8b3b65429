"""The project's texts use the field's terms: a word list, for names and sentences alike."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".md", ".py", ".toml", ".diff", ".template", ".yml", ".yaml", ".txt"}

INSTEAD = {
    r"mend(s|ed|ing)?": "fix",
    r"as right( as)?": "also correct, equally correct",
    r"(the )?law of \w+|keeps? the law": "lint, grading rules, requirements",
    r"breach(es|ed)?": "violation",
    r"hollow(ed)?": "stub",
    r"consultations?": "query",
    r"dear(er|est)?": "expensive",
    r"a word said": "the term",
    r"(is|was|were|are) asked of": "is required of",
    r"stands? in the (folder|file)|stands aside|stands on its own": "is in, does not apply, works alone",
    r"(step|probe) ?stations?": "events",
    r"mailbox(es)?": "message store",
    r"epitaph": "how it ended",
    r"to speak of": "negligible",
    r"of one's own": "your own",
    r"look(s|ing)? over the shoulder": "observes",
    r"(a|the|each|next|last) rungs?|rungs of": "feedback step, hint level",
    r"whoever": "the caller, what",
    r"cries? wolf": "raises a false alarm",
    r"round any loop": "around any loop",
    r"in the place of": "instead of",
}
"""Expressions that the project does not use, and what its texts say in their place."""

ALLOWED = {
    "docs/lessons",  # stories may be told in the words of a story: only the terms above the line are held against them
}
EVERYWHERE = ("mend", "as right", "law of", "breach", "hollow", "consultation", "mailbox", "dear", "whoever")


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\0") if listed.returncode == 0 else [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")]
    paths = [ROOT / name for name in names if name]
    skipped = (".venv", "site", "node_modules", "__pycache__")
    return [
        path
        for path in paths
        if path.suffix in SUFFIXES and path.is_file() and path != Path(__file__) and not {*skipped} & {*path.parts}
    ]


@pytest.mark.parametrize(("words", "instead"), INSTEAD.items(), ids=[word.split("(")[0] for word in INSTEAD])
def test_no_text_uses_a_word_that_the_field_does_not(words: str, instead: str) -> None:
    search = re.compile(rf"(?<![\w-])({words})(?![\w-])", re.IGNORECASE)
    found = []
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(tuple(ALLOWED)) and not any(term in words for term in EVERYWHERE):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            if search.search(line):
                found.append(f"{name}:{number}: {line.strip()[:120]}")
    assert not found, f"write {instead} instead:\n" + "\n".join(found)


def test_the_list_finds_what_it_is_for() -> None:
    sentences = ["The mended files", "it is as right as the other", "The dearest are left out", "whoever reads it"]
    for sentence in sentences:
        assert any(re.search(rf"(?<![\w-])({words})(?![\w-])", sentence, re.IGNORECASE) for words in INSTEAD), sentence
