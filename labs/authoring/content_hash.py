"""What a verification depends on: one hash for each part that can change a lab's verdicts.

Prose does not count: hints, why.md, the lesson, comments, docstrings, the sentences of `@check` and `@wrong_fix`, and
the fields of lab.toml and capstone.toml that only describe. Other text inside code counts, such as the sentence that a
recogniser builds.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from labs.authoring.canonical import canonical_form
from labs.authoring.edits import EditError
from labs.authoring.imports import PACKAGE, with_shared_modules
from labs.authoring.used_definitions import DEBUGKIT, used_of_debugkit
from labs.authoring.variants import read_variant, variant_paths
from labs.capstones.capstone import Capstone
from labs.grading.catalog import Lab

SEEDS_RECORD = "seeds.json"
RECORDS = ("verified.json", SEEDS_RECORD, "mutants.json", "equivalent_mutants.toml")
"""Results that are stored beside a lab's files and are made from them."""
FIELDS = ("editable", "timeout_s", "memory_mb", "seeds", "rules", "extras")
"""The fields of lab.toml that decide how a submission is graded."""
PROSE = {"check": ("title", "property", "instrument"), "wrong_fix": ("says",)}

_PACKAGE = PACKAGE
_LIBRARY, _GRADER, _DEBUGKIT = _PACKAGE / "vla", _PACKAGE / "grading", DEBUGKIT
# Of the grader: how a grade is shown; the answers, which every `lab dev verify` checks and no grade in it contains; and
# how much a submission may use, to which no stored submission comes near.
_NO_PART = ("feedback.py", "comparison.py", "documents.py", "answers.py", "sandbox/limits.py")
# How debugkit is run on a lab: it decides what debugkit finds, and no grade.
_DIAGNOSIS = "sandbox/diagnosis.py"
# The first two count by their fields; the others make what pages and handouts show.
NOT_GRADED = ("lab.toml", "capstone.toml", "figures.py", "make_evidence.py", "make_history.py")


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """SHA-256 of each part."""

    lab: str
    """The lab's and its solution's files, and the modules outside of them that its checks and probe use."""
    library: str
    """`labs/vla`, the healthy policy."""
    grader: str
    """`labs/grading`."""
    debugkit: str
    """The detectors, which examine the starter and every correct fix, and how a lab is given to them."""


def content_of(lab: Lab) -> Content:
    """The hashes as the files are now. Raises OSError."""
    return Content(*_deciding(lab), _of_the_detectors())


def decided_by(lab: Lab) -> str:
    """One hash of what decides a verdict: the lab, the healthy library and the grader. Raises OSError.

    A change of debugkit alone changes no verdict.
    """
    return hashlib.sha256("\n".join(_deciding(lab)).encode()).hexdigest()


def _deciding(lab: Lab) -> tuple[str, str, str]:
    return (_of_lab(lab), *of_the_grading())


def of_the_grading() -> tuple[str, str]:
    """The hashes of the healthy library and of the grader, which every lab's verdicts depend on. Raises OSError."""
    return folder_hash(_LIBRARY), folder_hash(_GRADER, (*_NO_PART, _DIAGNOSIS))


@functools.cache
def folder_hash(folder: Path, left_out: tuple[str, ...] = ()) -> str:
    """The hash of a folder's files, Markdown and `left_out` apart; computed once in a process."""
    return digest({name: canonical_form(name, content) for name, content in lab_files(folder) if name not in left_out})


def _of_the_detectors() -> str:
    diagnosis = _GRADER / _DIAGNOSIS
    return digest({"": folder_hash(_DEBUGKIT), _DIAGNOSIS: canonical_form(diagnosis.name, diagnosis.read_bytes())})


def _of_lab(lab: Lab) -> str:
    forms = form_of_facts(lab)
    for kind, folder in (("lab", lab.folder), ("solution", lab.solution)):
        for name, content in lab_files(folder):
            if name not in (*RECORDS, *NOT_GRADED) and not name.endswith(".diff"):
                forms[f"{kind}/{name}"] = canonical_form(name, content, PROSE if name == "checks.py" else None)
    for path in variant_paths(lab):
        forms[f"variant/{path.stem}"] = form_of_variant(lab, path)
    for path in _with_imports(lab):
        if lab.folder not in path.parents:
            forms[path.relative_to(_PACKAGE).as_posix()] = canonical_form(path.name, path.read_bytes())
    for path, source in used_of_debugkit(_with_imports(lab), _DEBUGKIT).items():
        forms[path.relative_to(_DEBUGKIT.parent).as_posix()] = canonical_form(path.name, source.encode())
    return digest(forms)


def form_of_facts(lab: Lab) -> dict[str, str]:
    """The forms of what lab.toml and capstone.toml say and a grade depends on."""
    forms = {"lab.toml": repr([getattr(lab, field) for field in FIELDS])}
    if isinstance(lab, Capstone):
        forms["faults"] = repr([fault.checks for fault in lab.faults])
    if lab.questions:
        forms["questions"] = repr([(one.id, one.form, one.unit, one.choices) for one in lab.questions])
    return forms


def form_of_variant(lab: Lab, path: Path) -> str:
    """The form of the submission that it makes: how the edit is written does not matter."""
    try:
        variant = read_variant(path)
        files = variant.files(lab)
    except (EditError, OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return repr(
        (variant.refused_by, sorted((name, canonical_form(name, text.encode())) for name, text in files.items()))
    )


def _with_imports(lab: Lab) -> list[Path]:
    """The lab's checks, probe and starter, and the modules shared by labs that they import."""
    names = ("checks.py", "probe.py", *lab.editable)
    return with_shared_modules([lab.folder / name for name in names if name.endswith(".py")], _PACKAGE)


def lab_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The names and contents of a folder's files that may count, in order."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in name.parts)
        if path.is_file() and not hidden and path.suffix != ".md":
            yield name.as_posix(), path.read_bytes()


def digest(forms: Mapping[str, str]) -> str:
    """SHA-256 of named forms."""
    hashed = hashlib.sha256()
    for name, form in sorted(forms.items()):
        hashed.update(f"{name}\0{len(form)}\0{form}".encode())
    return hashed.hexdigest()
