"""What counts for a lab's verification and what does not: change one thing, and see which hash changes."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import labs.grading
from edited_files import append, rewrite
from labs.authoring import content_hash
from labs.authoring.canonical import _form, canonical_form, python_form
from labs.authoring.content_hash import FIELDS, content_of, folder_hash
from labs.authoring.used_definitions import DEBUGKIT, WHOLE, Use, used_by, used_definitions, used_of_debugkit
from labs.authoring.verified import RECORD, why_stale, write_verified
from labs.grading import catalog
from labs.grading.catalog import Lab, all_labs

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

DESCRIBES = {
    *("id", "slug", "title", "chapter", "difficulty", "minutes", "loudness", "symptom", "prerequisites", "anchor"),
    "notes_topics",
}

AFTER_IT = "def normalise(action: Tensor, mean: Tensor, std: Tensor) -> Tensor:"
MODULES = (
    *("vla/policy.py", "debugkit/registry.py", "shared.py"),
    *("grading/grader.py", "grading/rng.py", "grading/feedback.py", "grading/answers.py"),
    *("grading/sandbox/child.py", "grading/sandbox/limits.py"),
    "grading/sandbox/diagnosis.py",
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small library, grader and debugkit, and a module that checks share, in the places that are hashed."""
    root = tmp_path / "package"
    for name in MODULES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f'"""The file {name}."""\n\nimport torch\n')
    (root / "grading" / "checks.ini").write_text("# Comment.\n[pytest]\n")
    for name, folder in (("_LIBRARY", "vla"), ("_GRADER", "grading"), ("_DEBUGKIT", "debugkit"), ("_PACKAGE", ".")):
        monkeypatch.setattr(content_hash, name, root / folder)
    folder_hash.cache_clear()
    yield root
    folder_hash.cache_clear()


def reread() -> Lab:
    catalog.all_labs.cache_clear()
    return catalog.find("03")


PROSE: dict[str, Callable[[Lab], None]] = {
    "a comma in the hints": lambda lab: append(lab.folder / "hints.md", ", or so"),
    "why.md": lambda lab: append(lab.solution / "why.md", "More."),
    "a comment": lambda lab: append(lab.folder / "checks.py", "\n# a comment\n"),
    "the layout": lambda lab: append(lab.folder / "probe.py", "\n\n\n"),
    "a docstring": lambda lab: rewrite(lab.folder / "policy.py", '"""Turns a', '"""Converts a'),
    "a check's sentences": lambda lab: rewrite(lab.folder / "checks.py", 'title="', 'title="In other words: '),
    "the title and the minutes": lambda lab: rewrite(lab.folder / "lab.toml", "minutes = ", "minutes = 1"),
    "a wrong fix's reason": lambda lab: rewrite(lab.folder / "wrong_fixes" / "clamp.diff", "why: ", "why: That "),
    "how an edit is written": lambda lab: rewrite(
        lab.folder / "wrong_fixes" / "clamp.diff", "(-1, 1)\n", f"(-1, 1)\n\n\n {AFTER_IT}\n"
    ),
    "the figures": lambda lab: (lab.folder / "figures.py").write_text("x = 1\n"),
    "bytecode": lambda lab: ((lab.folder / "__pycache__").mkdir(), (lab.folder / "__pycache__" / "a.pyc").touch()),
}
CODE: dict[str, Callable[[Lab], None]] = {
    "a check": lambda lab: rewrite(lab.folder / "checks.py", "for batch in (1, 5", "for batch in (1, 6"),
    "a check's kind": lambda lab: rewrite(lab.folder / "checks.py", 'kind="invariant"', 'kind="behaviour"'),
    "the probe": lambda lab: append(lab.folder / "probe.py", "\nX = 1\n"),
    "the starter": lambda lab: append(lab.folder / "policy.py", "\nX = 1\n"),
    "the solution": lambda lab: append(lab.solution / "policy.py", "\nX = 1\n"),
    "a wrong fix": lambda lab: rewrite(lab.folder / "wrong_fixes" / "clamp.diff", "clamp(-1, 1)", "clamp(-1, 2)"),
    "the check that refuses it": lambda lab: rewrite(
        lab.folder / "wrong_fixes" / "clamp.diff", "test_equals_the_reference", "test_round_trip"
    ),
    "a wrong fix's name": lambda lab: (lab.folder / "wrong_fixes" / "clamp.diff").rename(
        lab.folder / "wrong_fixes" / "clip.diff"
    ),
    "an edit that does not fit": lambda lab: append(lab.folder / "wrong_fixes" / "clamp.diff", "@@\n-nothing\n"),
    "an alternative": lambda lab: (lab.solution / "alternative_addcmul.diff").unlink(),
    "the seeds": lambda lab: rewrite(lab.folder / "lab.toml", "[1, 2, 3, 4, 5]", "[1, 2, 3, 4, 6]"),
    "the time limit": lambda lab: rewrite(lab.folder / "lab.toml", "timeout_s = 60", "timeout_s = 61"),
    "a file beside the starter": lambda lab: (lab.folder / "log.txt").write_text("x"),
}


@pytest.mark.parametrize("change", PROSE)
def test_prose_does_not_cost_a_verification(lab: Lab, package: Path, change: str) -> None:
    before = content_of(lab)
    PROSE[change](lab)
    assert content_of(reread()) == before


@pytest.mark.parametrize("change", CODE)
def test_what_can_change_a_verdict_counts_as_the_labs_own(lab: Lab, package: Path, change: str) -> None:
    before = content_of(lab)
    CODE[change](lab)
    after = content_of(reread())
    assert after.lab != before.lab
    assert msgspec.structs.replace(after, lab=before.lab) == before


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("vla/policy.py", "library"),
        ("grading/grader.py", "grader"),
        ("grading/sandbox/child.py", "grader"),
        ("grading/sandbox/diagnosis.py", "debugkit"),
        ("debugkit/registry.py", "debugkit"),
    ],
)
def test_a_change_of_the_library_the_grader_or_debugkit_is_told_apart(
    lab: Lab, package: Path, file: str, part: str
) -> None:
    write_verified(lab, grades=12, margins={"test_reaches": None})
    assert why_stale(lab) is None
    append(package / file, "\n# a comment\n")
    folder_hash.cache_clear()
    assert why_stale(lab) is None
    append(package / file, "\nX = 1\n")
    folder_hash.cache_clear()
    stale = why_stale(lab)
    assert stale is not None
    assert stale.changed == (part,)


def test_the_graders_configuration_and_the_librarys_weights_count(lab: Lab, package: Path) -> None:
    before = content_of(lab)
    append(package / "grading" / "checks.ini", "addopts = -q\n")
    (package / "vla" / "base.safetensors").write_bytes(b"weights")
    folder_hash.cache_clear()
    after = content_of(lab)
    assert after.grader != before.grader
    assert after.library != before.library


@pytest.mark.parametrize("file", ["feedback.py", "answers.py", "sandbox/limits.py"])
def test_how_a_grade_is_shown_answers_and_limits_do_not_count(lab: Lab, package: Path, file: str) -> None:
    before = content_of(lab)
    append(package / "grading" / file, "\nX = 1\n")
    folder_hash.cache_clear()
    assert content_of(lab) == before
    shipped = Path(labs.grading.__file__).parent
    judging = [shipped / name for name in ("grader.py", "plugin.py", "runner.py", "queries.py")]
    assert not [path.name for path in judging if "feedback" in path.read_text() or "documents" in path.read_text()]


def test_a_shared_module_counts_for_the_labs_that_import_it(lab: Lab, package: Path) -> None:
    alone = content_of(lab)
    append(package / "shared.py", "X = 1\n")
    assert content_of(lab) == alone
    append(lab.folder / "probe.py", "from labs.shared import batch\n")
    before = content_of(lab)
    append(package / "shared.py", "# a comment\n")
    assert content_of(lab) == before
    append(package / "shared.py", "Y = 1\n")
    assert content_of(lab).lab != before.lab


@pytest.mark.parametrize(
    ("text", "used", "unused"),
    [
        ("from debugkit import Finding\n", ["finding.py"], ["structure.py", "rule.py"]),
        ("from debugkit import Declare\n", [], ["declare.py", "structure.py", "rule.py"]),
        ("from debugkit.structure import tensors_in\n", ["structure.py"], ["declare.py", "rule.py"]),
        (
            "import debugkit\ncut = debugkit.find_graph_cut\n",
            ["instruments/find_graph_cut.py", "setup.py", "structure.py"],  # the second and third through the first
            ["rule.py", "preflight.py"],
        ),
        ("import debugkit\n", [], ["declare.py", "rule.py"]),
        ("import debugkit\nreport = debugkit.check()\n", ["rules/dk305_batch_leak/measure.py", "preflight.py"], []),
    ],
)
def test_what_a_lab_uses_of_debugkit_is_found(lab: Lab, text: str, used: list[str], unused: list[str]) -> None:
    append(lab.folder / "probe.py", text)
    found = {path.relative_to(DEBUGKIT).as_posix() for path in used_of_debugkit([lab.folder / "probe.py"])}
    assert set(used) <= found
    assert not set(unused) & found


def test_what_a_lab_uses_of_debugkit_counts_as_its_own(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "debugkit"
    shutil.copytree(DEBUGKIT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(content_hash, "_DEBUGKIT", copy)
    append(lab.folder / "probe.py", "from debugkit.structure import tensors_in\nfrom debugkit import Declare\n")
    before = content_of(lab).lab
    append(copy / "randomness.py", "X = 1\n")  # another module
    append(copy / "declare.py", "X = 1\n")  # only the detectors read it
    append(copy / "structure.py", "def unused() -> int:\n    return 1\n")
    assert content_of(lab).lab == before
    append(copy / "structure.py", "tensors_in.__doc__ = ''\n")  # runs at import
    assert content_of(lab).lab != before


def used(tmp_path: Path, uses: str, *, first: str, second: str = "") -> dict[str, str]:
    """What is used of the modules `first` and `second` by a file that is `uses`, by name."""
    for name, text in (("first", first), ("second", second)):
        (tmp_path / f"{name}.py").write_text(text)

    def resolve(module: str, name: str) -> Use | None:
        package, _, file = module.partition(".")
        if package != "package" or file not in ("first", "second", ""):
            return None
        return (tmp_path / f"{file}.py", name) if file else (tmp_path / f"{name}.py", WHOLE)

    (tmp_path / "uses.py").write_text(uses)
    of_it = [use for node in ast.walk(ast.parse(uses)) for use in used_by(node, resolve)]
    return {path.stem: source for path, source in used_definitions(of_it, resolve).items()}


HELPERS = """from package.second import far
LIMIT = 3
def near(): return LIMIT
def a(): return near()
def b(): return far()
"""


def test_of_a_module_only_the_definitions_count_that_a_name_needs(tmp_path: Path) -> None:
    found = used(tmp_path, "from package.first import a", first=HELPERS)
    assert list(found) == ["first"]
    assert "def near" in found["first"]
    assert "LIMIT = 3" in found["first"]
    assert "def b" not in found["first"]


@pytest.mark.parametrize("uses", ["from package.first import b", "from package import first", "import package.first"])
def test_what_a_definition_imports_is_followed(tmp_path: Path, uses: str) -> None:
    found = used(tmp_path, uses, first=HELPERS, second="def far(): return 1\ndef other(): return 2\n")
    assert found["second"] == "def far():\n    return 1"
    assert ("def a" in found["first"]) == (uses != "from package.first import b")


def test_what_runs_at_import_and_what_a_function_imports_count(tmp_path: Path) -> None:
    first = "register(1)\nif True:\n    X = 1\ndef a():\n    from package.second import far\n    return far() + X\n"
    found = used(tmp_path, "from package.first import a", first=first, second="far = len\nnear = 1\n")
    assert found["second"] == "far = len"
    assert "register(1)" in found["first"]
    assert "X = 1" in found["first"]


def test_every_field_of_a_labs_facts_either_decides_or_describes() -> None:
    # Of the questions, the texts describe and the rest decides: tests/labs/test_answers.py.
    assert set(FIELDS) | DESCRIBES | {"questions"} == set(Lab.__struct_fields__)
    assert not set(FIELDS) & DESCRIBES


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (None, "never fully verified"),
        ("{}", "cannot be read"),
        ("not JSON", "cannot be read"),
        ("\udcff", "cannot be read"),
        ('{"schema": 1, "content": "786404e8", "grades": 61}', "has an older format"),
        ('{"schema": 2, "date": "2026-11-21"}', "cannot be read"),
    ],
)
def test_an_unusable_record_means_verify_again(lab: Lab, record: str | None, said: str) -> None:
    if record is not None:
        (lab.solution / RECORD).write_bytes(record.encode("utf-8", "surrogateescape"))
    stale = why_stale(lab)
    assert stale is not None
    assert stale.changed == ()
    assert said in stale.sentence


def test_several_parts_that_changed_are_listed_with_the_date(lab: Lab, package: Path) -> None:
    write_verified(lab, grades=12, margins={})
    record = lab.solution / RECORD
    date = json.loads(record.read_text())["date"]
    append(lab.folder / "probe.py", "X = 1\n")
    rewrite(package / "vla" / "policy.py", "import torch", "import torch as torch")
    rewrite(package / "grading" / "rng.py", "import torch", "import torch as torch")
    folder_hash.cache_clear()
    stale = why_stale(lab)
    assert stale is not None
    assert stale.changed == ("lab", "library", "grader")
    assert stale.sentence == f"its own files, the healthy library and the grader changed since {date}"
    assert stale.changes is None


@pytest.mark.extended
def test_every_shipped_record_can_be_judged() -> None:
    """It holds, or it says why not; reading it never fails."""
    stale = [why_stale(lab) for lab in all_labs()]
    assert all(one is None or one.sentence for one in stale)


def test_the_form_of_python_does_not_depend_on_its_version() -> None:
    # 3.12 adds an empty text to the tree of such a format, and a list of type parameters to every function.
    form = python_form('def f(x): return f"{x:>{8}}"', {})
    assert _form(ast.JoinedStr([ast.Constant("a"), ast.Constant("")]), {}) == _form(
        ast.JoinedStr([ast.Constant("a")]), {}
    )
    assert hashlib.sha256(form.encode()).hexdigest()[:16] == "186f8733e4b44f83"


@pytest.mark.parametrize(
    ("name", "text", "same", "other"),
    [
        ("a.py", "x = 1", "x = 1  # one", "x = True"),
        ("a.py", "def f():\n    return None", 'def f():\n    """F."""\n    return None', "def f():\n    return"),
        ("a.py", "x = 1.0", "x = (1.0)", "x = 1"),
        ("a.yaml", "a: 1\nb: 2", "a: 1 # one\n\nb:   2", "b: 2\na: 1"),
        ("a.yaml", "# @package _global_\na: 1", "# @package _global_\n# more\na: 1", "a: 1"),
        ("a.toml", "a = 1", "# one\na = 1", "a = 2"),
        ("a.ini", "[a]\nb = 1", "# one\n\n[a]\nb = 1", "[a]\nb = 2"),
        ("a.txt", "a", "a", "a "),
        ("a.py", "x = = 1", "x = = 1", "x = =  1"),
        ("a.yaml", "a: [", "a: [", "a:  ["),
    ],
)
def test_a_canonical_form_is_what_a_file_does(name: str, text: str, same: str, other: str) -> None:
    assert canonical_form(name, text.encode()) == canonical_form(name, same.encode())
    assert canonical_form(name, text.encode()) != canonical_form(name, other.encode())
