"""The project's texts use the field's terms: a word list, for names and sentences alike."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import polib
import pytest

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".md", ".py", ".toml", ".diff", ".template", ".yml", ".yaml", ".txt", ".ipynb", ".po"}

INSTEAD = {
    r"mend(s|ed|ing)?": "fix",
    r"as right( as)?": "also correct, equally correct",
    r"(the )?law of( \w+)?|keeps? the law": "lint, grading rules, requirements",
    r"breach(es|ed)?": "violation",
    r"hollow(ed)?": "stub",
    r"consultations?": "query",
    r"dear(er|est)?": "expensive",
    r"a word said": "the term",
    r"(is|was|were|are) asked of": "is required of",
    r"stands? in the (folder|file)|st(ands?|ood) aside|stands on its own": "is in, reports nothing, works alone",
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
    r"anew": "again, recreated",
    r"for ever": "forever",
    r"by heart": "memorise, overfit",
    r"(say|says|said|saying) nothing": "reports nothing, shows nothing",
    r"hand(s|ed|ing)? over": "pass",
}
"""Expressions that the project does not use, and what its texts say in their place."""

EVERYWHERE = ("mend", "as right", "law of", "breach", "hollow", "consultation", "mailbox", "dear", "whoever")
STORIES = ("docs/lessons/*", "docs/notebooks/*", "labs/mystery/names.py")
"""Stories may be told in the words of a story: only the words in `EVERYWHERE` are held against them."""
VERIFIED = {
    r"(the )?law of( \w+)?|keeps? the law": ("capstones/capstone_99_*/checks.py",),
    r"anew": (
        "lab26_*/checks.py",
        "lab27_*/wrong_fixes/*",
        "lab44_*/checks.py",
        "lab72_*/wrong_fixes/*",
        "lab92_*/probe.py",
    ),
    r"by heart": ("lab02_*", "lab16_*", "lab32_*", "lab55_*", "lab71_*/checks.py", "lab91_*/probe.py"),
    r"(say|says|said|saying) nothing": ("lab62_*/wrong_fixes/*",),
}
"""Files that still contain a word of the list until they change for another reason: a verification of labs, or the
record of extended tests, depends on them.
"""
FOLDERS = ("labs", "solutions")


@functools.cache
def tracked() -> tuple[Path, ...]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\0") if listed.returncode == 0 else [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")]
    paths = [ROOT / name for name in names if name]
    skipped = (".venv", "site", "node_modules", "__pycache__")
    return tuple(
        path
        for path in paths
        if path.suffix in SUFFIXES
        and path.is_file()
        and path != Path(__file__)
        and not {*skipped} & {*path.relative_to(ROOT).parts}
    )


@functools.cache
def texts(path: Path) -> tuple[tuple[int, str, tuple[str, ...]], ...]:
    """The English texts of a file: each with its first line, and the files that it was taken from."""
    name = (path.relative_to(ROOT).as_posix(),)
    if path.suffix == ".po":
        entries = [one for one in polib.pofile(str(path)) if not one.obsolete]
        return tuple((one.linenum, one.msgid, tuple(place for place, _ in one.occurrences) or name) for one in entries)
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return tuple((number, "".join(cell["source"]), name) for number, cell in enumerate(cells, start=1))
    return ((1, path.read_text(encoding="utf-8", errors="replace"), name),)


def pattern(words: str) -> re.Pattern[str]:
    """Matches the words in a sentence, also across lines, and in a name: `law_of`, `test_law_of_two`."""
    between = r"""[\s_#"']+"""
    return re.compile(rf"(?<![a-z0-9-])(?:{words.replace(' ', between)})(?![a-z0-9-])", re.IGNORECASE)


def found_in(path: Path, words: str) -> Iterator[str]:
    search = pattern(words)
    for first, text, sources in texts(path):
        if not all(is_allowed(source, words) for source in sources):
            for match in search.finditer(text):
                number = first + text.count("\n", 0, match.start())
                line = text[text.rfind("\n", 0, match.start()) + 1 :].splitlines()[0]
                yield f"{path.relative_to(ROOT).as_posix()}:{number}: {line.strip()[:120]}"


def is_allowed(name: str, words: str) -> bool:
    if any(fnmatch(name, story) for story in STORIES):
        return not any(term in words for term in EVERYWHERE)
    if name.endswith((".md", ".toml")):
        return False
    return any(fnmatch(name, f"{folder}/{one}*") for folder in FOLDERS for one in VERIFIED.get(words, ()))


@pytest.mark.parametrize(("words", "instead"), INSTEAD.items(), ids=[word.split("(")[0] for word in INSTEAD])
def test_no_text_uses_a_word_that_the_field_does_not(words: str, instead: str) -> None:
    found = [one for path in tracked() for one in found_in(path, words)]
    assert not found, f"write {instead} instead:\n" + "\n".join(found)


@pytest.mark.parametrize(("words", "one"), [(words, one) for words, many in VERIFIED.items() for one in many])
def test_each_exception_is_still_needed(words: str, one: str) -> None:
    names = [f"{folder}/{one}*" for folder in FOLDERS]
    paths = [path for path in tracked() if any(fnmatch(path.relative_to(ROOT).as_posix(), name) for name in names)]
    assert any(pattern(words).search(text) for path in paths for _, text, _ in texts(path)), "remove it from VERIFIED"


@pytest.mark.parametrize(
    "text",
    [
        "The mended files",
        "it is as right as the other",
        "The dearest are left out",
        "whoever reads it",
        "DK008 and DK306 stand aside where two passes differ",
        "config, gains = cell_of(rng), law_of(rng)",
        "def test_whoever_reads_it() -> None:",
        "# the optimizer is handed\n# over to the trainer",
        '"the policy stands "\n    "aside"',
    ],
)
def test_the_list_finds_what_it_is_for(text: str) -> None:
    assert any(pattern(words).search(text) for words in INSTEAD)


def test_catalogues_and_notebooks_are_read() -> None:
    assert {".po", ".ipynb"} <= {path.suffix for path in tracked() if any(text for _, text, _ in texts(path))}


@pytest.mark.parametrize("text", ["an amended file", "the lawyer of the firm", "newly made", "overhand"])
def test_the_list_leaves_other_words_alone(text: str) -> None:
    assert not any(pattern(words).search(text) for words in INSTEAD)
