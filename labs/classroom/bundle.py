"""`lab class bundle`: a course pack, some labs with all that runs and grades them and nothing that solves them.

    NAME/
      pack.toml  pyproject.toml  README.md  LICENSE
      debugkit/
      labs/            the grader, the commands of a learner, the healthy policy
        labNN_slug/    starter, probe, hints, lesson; checks and answers are compressed

What would tell a solution is left out or shortened here, in one place for each file.
"""

from __future__ import annotations

import difflib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import debugkit
from labs.classroom.bundle_files import (
    lab_toml,
    lesson_without_fix,
    license_text,
    packed_checks,
    pyproject,
    readme,
    short_hints,
)
from labs.grading import catalog
from labs.grading.answers import ANSWERS, PACKED, packed
from labs.grading.catalog import Lab
from labs.grading.errors import UsageError
from labs.learner.lesson import LESSON, lesson_file
from labs.learner.pack import Pack
from labs.learner.pack_source import PACK
from labs.learner.paths import PATHS
from labs.locale import CATALOGUE

ARCHIVES = {".zip": "zip", ".tar.gz": "gztar"}
"""How OUT ends, and the format; any other OUT is a folder."""
NOT_BUNDLED = ("wrong_fixes", "mutants.json", "equivalent_mutants.toml", "figures.py")
"""Files of a lab's folder that are made from the solution or quote it."""
PACKAGES = ("cli", "grading", "learner", "locale", "vla")
"""Packages of `labs` that a learner's commands import. The commands of authors and instructors are left out."""
_LABS = Path(__file__).parents[1]
_COMPARING = ("authoring/__init__.py", "authoring/canonical.py", "authoring/imports.py")
"""What `lab upgrade` compares checks with."""
_FORMER_NAMES = "learner/former_names.py"
_TELLING = 9
"""A shorter line, such as `finally:`, tells nothing."""


def write_bundle(out: Path, labs: Sequence[Lab], *, pack: Pack, hints: int) -> list[Path]:
    """Write a course pack to a folder, or to an archive if `out` ends in .zip or .tar.gz, and list its files.

    `hints`: how many of the three hints it has. Raises UsageError if `out` exists, or if a line that a solution adds is
    in a lab's files; OSError. A failure leaves nothing behind.
    """
    if out.exists():
        raise UsageError(f"{out} exists, and nothing was written. Move it, or choose another name.")
    suffix = next((one for one in ARCHIVES if out.name.endswith(one)), "")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".bundle-") as scratch:
        root = Path(scratch) / (out.name.removesuffix(suffix) or pack.name)
        root.mkdir()
        _write(root, labs, pack, hints)
        for lab in labs:
            for place, line in told_lines(lab, root / "labs" / lab.name):
                where = place.relative_to(root)
                raise UsageError(f"{where} has a line of the solution of lab {lab.id}, `{line}`: nothing was written.")
        files = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
        if suffix:
            made = Path(shutil.make_archive(str(Path(scratch) / "archive"), ARCHIVES[suffix], scratch, root.name))
            made.rename(out)
        else:
            root.rename(out)
    return files


def added_lines(lab: Lab) -> list[str]:
    """The lines that the solution adds and that the starter has nowhere, without indentation and short ones."""
    added = []
    for name in lab.editable:
        before = (lab.folder / name).read_text(encoding="utf-8").splitlines()
        after = (lab.solution / name).read_text(encoding="utf-8").splitlines()
        known = {line.strip() for line in before}
        lines = (line[2:].strip() for line in difflib.ndiff(before, after) if line.startswith("+ "))
        added += [line for line in lines if len(line) >= _TELLING and line not in known]
    return added


def told_lines(lab: Lab, folder: Path) -> Iterator[tuple[Path, str]]:
    """Each place in `folder` where a line that the solution adds is written, and the line."""
    added = added_lines(lab)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            lines = {line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()}
            yield from ((path, line) for line in added if line in lines)


def _write(root: Path, labs: Sequence[Lab], pack: Pack, hints: int) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(Path(debugkit.__file__).parent, root / "debugkit", ignore=ignored)
    (root / "debugkit" / "pyproject.toml").unlink(missing_ok=True)
    (root / "labs").mkdir()
    for module in _LABS.glob("*.py"):
        shutil.copyfile(module, root / "labs" / module.name)
    if (catalog.LABS_ROOT / PATHS).is_file():
        shutil.copyfile(catalog.LABS_ROOT / PATHS, root / "labs" / PATHS)
    for package in PACKAGES:
        shutil.copytree(_LABS / package, root / "labs" / package, ignore=ignored)
    for name in _COMPARING:
        (root / "labs" / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(_LABS / name, root / "labs" / name)
    _without_former_names(root / "labs" / _FORMER_NAMES)
    _without_texts_of_labs(root / "labs" / "locale" / CATALOGUE.name)
    for lab in labs:
        _write_lab(root / "labs" / lab.name, lab, labs, hints)
    texts = {
        PACK: f'name = "{pack.name}"\nversion = "{pack.version}"\nsolutions = false\n',
        "pyproject.toml": pyproject(labs),
        "README.md": readme(pack, labs),
        "LICENSE": license_text(),
    }
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")


def _write_lab(to: Path, lab: Lab, labs: Sequence[Lab], hints: int) -> None:
    shutil.copytree(lab.folder, to, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", *NOT_BUNDLED))
    (to / "lab.toml").write_text(lab_toml(lab, {one.id for one in labs}), encoding="utf-8")
    checks = to / "checks.py"
    checks.write_text(packed_checks(checks.read_bytes()), encoding="utf-8")
    told = (to / "hints.md").read_text(encoding="utf-8")
    (to / "hints.md").write_text(short_hints(told, hints), encoding="utf-8")
    if lab.questions:
        (to / PACKED).write_bytes(packed((lab.solution / ANSWERS).read_bytes()))
    page = lesson_file(lab)
    if page.is_file():
        text, figures = lesson_without_fix(page)
        (to / LESSON).write_text(text, encoding="utf-8")
        for figure in figures:
            (to / figure).parent.mkdir(exist_ok=True)
            shutil.copyfile(page.parent / figure, to / figure)


def _without_texts_of_labs(catalogue: Path) -> None:
    """The catalogue quotes hints, wrong fixes and solutions: the pack's commands are translated, its labs are not."""
    import polib

    entries = polib.pofile(str(catalogue), wrapwidth=0)
    told = ("labs/lab", "solutions/")
    entries[:] = [one for one in entries if not any(place.startswith(told) for place, _ in one.occurrences)]
    entries.save(str(catalogue))


def _without_former_names(path: Path) -> None:
    """A folder's name in an older release named the fault."""
    head, begin, rest = path.read_text(encoding="utf-8").partition("FORMER_NAMES: dict[str, tuple[str, ...]] = {")
    _, end, tail = rest.partition("\n}\n")
    assert begin, "former_names.py declares FORMER_NAMES"
    assert end, "former_names.py ends its table with a line of its own"
    path.write_text(f"{head}{begin}}}\n{tail}", encoding="utf-8")
