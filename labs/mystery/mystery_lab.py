"""A mystery as a lab that the ordinary grader, workspace and commands take.

What a lab has in its folder is in `.lab/mystery/NAME/` of the workspace: the learner's files as planted, the probe, the
checks, the hints. The healthy program is in none of them: the checks compose it from the seed, in the grader's process.
"""

from __future__ import annotations

import ast
import json
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labs.grading.catalog import Anchor, Lab, UnknownLabError
from labs.learner.atomic_file import write_atomically
from labs.learner.progress import Progress
from labs.learner.workspace import Workspace, WorkspaceError
from labs.locale import translated
from labs.mystery.compose import FILES
from labs.mystery.operators import MEASUREMENTS, PLACES, Operator
from labs.mystery.plant import Key, Planted, drawn, plant

LATEST = "latest"
"""The file with the name of the mystery that was begun last: `lab grade mystery` means that one."""
RECORD = "mystery.json"
_CHECKS = '''"""The checks of one mystery. The healthy program is composed from the seed, in the grader's process."""

from labs.mystery.generated_checks import declare

declare(globals(), {name!r}, {attempt})
'''


class MysteryLab(Lab, frozen=True, kw_only=True):
    """A generated lab. `state` is the workspace's folder of mysteries."""

    state: Path

    @property
    def name(self) -> str:
        """The folder's name, which is also the id."""
        return self.id

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self.state / self.id

    @property
    def solution(self) -> Path:
        """A folder that does not exist: what is hidden from the submission is the package that it would be in."""
        return Path(__file__).with_name("solution")

    @property
    def lesson(self) -> str:
        """The page about mysteries, below `docs/`."""
        return "guides/mystery"


def today() -> int:
    """The seed of the day, in UTC: 20261123."""
    return int(datetime.now(UTC).strftime("%Y%m%d"))


def mystery_lab(key: Key, workspace: Workspace, symptom: str = "") -> MysteryLab:
    """The lab of a key; its files may not exist yet."""
    level = key.actual_level
    return MysteryLab(
        id=key.name,
        slug="mystery",
        title=f"Mystery {key.seed}",
        chapter=key.chapter or "loop",  # type: ignore[arg-type]  # shown nowhere; the chapter of the fault is not told
        difficulty=level,
        minutes=10 * level + 5,
        loudness="loud" if level == 1 else "silent",
        symptom=symptom,
        editable=FILES,
        timeout_s=60,
        seeds=(1, 2),
        anchor=Anchor(bug="", project="", urls=()),
        state=workspace.state / "mystery",
    )


def begin(key: Key, workspace: Workspace) -> MysteryLab:
    """Make a mystery in a workspace, unless it is there; it becomes the latest. Raises NoMysteryError, OSError."""
    workspace.make()
    lab = mystery_lab(key, workspace)
    is_there = (lab.folder / RECORD).is_file()
    if not is_there or not _is_current(key, lab):
        _write(lab, plant(key))
        if is_there and workspace.attempt(lab).is_dir():
            workspace.reset(lab)  # the attempt at another release's program is kept, and not graded as one at this
    write_atomically(lab.state / LATEST, f"{key.name}\n".encode())
    return find_mystery(key.name, workspace)


def is_mystery(number: str) -> bool:
    """Whether a command's argument names a mystery and not a lab."""
    return number == "mystery" or Key.of_name(number) is not None


def find_mystery(number: str, workspace: Workspace) -> MysteryLab:
    """The mystery of that name, or the latest for `mystery`. Raises UnknownLabError, WorkspaceError."""
    state = workspace.state / "mystery"
    name = number
    if number == "mystery":
        try:
            name = (state / LATEST).read_text(encoding="utf-8").strip()
        except OSError:
            raise UnknownLabError("There is no mystery in this workspace yet. `lab mystery` makes today's.") from None
    key = Key.of_name(name)
    record = state / name / RECORD
    if key is None or not record.is_file():
        raise UnknownLabError(f"There is no {name} in this workspace. {_how_to_make(key)}")
    lab = mystery_lab(key, workspace, " ".join(translated(one) for one in _read(record)["symptoms"]))
    if not _is_current(key, lab):
        raise WorkspaceError(
            f"{name} was made by another release of vla-debug-lab, which composes other programs. {_how_to_make(key)}"
        )
    return lab


def mysteries_in(progress: Progress, workspace: Workspace) -> list[MysteryLab]:
    """The mysteries that a learner has begun, the newest first."""
    keys = [(done.started_at, key) for name, done in progress.labs.items() if (key := Key.of_name(name)) is not None]
    return [mystery_lab(key, workspace) for _, key in sorted(keys, key=lambda one: one[0], reverse=True)]


def planted_in(lab: MysteryLab) -> Planted:
    """The mystery of a lab with its healthy program. Raises WorkspaceError if this release composes another."""
    key = Key.of_name(lab.id)
    assert key is not None
    planted = drawn(key, int(_read(lab.folder / RECORD)["attempt"]))
    assert planted is not None
    return planted


def solution_of(lab: MysteryLab, to: Path) -> str:
    """Write the healthy files into a folder, and return what was wrong, one paragraph for each fault."""
    planted = planted_in(lab)
    for name, text in planted.program.files.items():
        (to / name).write_text(text, encoding="utf-8")
    return "\n\n".join(_paragraphs(planted))


def hints_text(planted: Planted) -> str:
    """`hints.md` of a mystery: each level has a paragraph for each fault."""
    where = list(dict.fromkeys(PLACES[one.place] for one in planted.operators))
    measure = list(dict.fromkeys(MEASUREMENTS[one.shows] for one in planted.operators))
    wrong = _paragraphs(planted)
    if len(planted.operators) > 1:
        where.insert(0, TWO)
    sections = (("Where to look", where), ("What to measure", measure), ("What is wrong", wrong))
    return "\n".join(
        f"## {level} {title}\n\n" + "\n\n".join(lines) + "\n" for level, (title, lines) in enumerate(sections, 1)
    )


TWO = "There are two faults, and they have nothing to do with each other."
MAKES = "`lab mystery{options}` makes it."
IN = "It is in `{file}`, in `{function}`."


def _paragraphs(planted: Planted) -> list[str]:
    found = []
    for one in planted.operators:
        file, function = place_of(planted, one)
        found += [one.wrong, IN.format(file=file, function=function)]
    return found


def place_of(planted: Planted, operator: Operator) -> tuple[str, str]:
    """The file, and the function or class in which an operator changes the healthy program."""
    healthy = planted.program.files
    files = operator.planted(planted.program, healthy)
    assert files is not None
    file = next(name for name in FILES if files[name] != healthy[name])
    before, after = healthy[file].splitlines(), files[file].splitlines()
    same = (number for number, (one, other) in enumerate(zip(before, after, strict=False), 1) if one != other)
    line = next(same, min(len(before), len(after)))
    names = _enclosing(ast.parse(healthy[file]), line)
    return file, ".".join(names) or file


def _enclosing(tree: ast.AST, line: int) -> list[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first <= line <= (node.end_lineno or node.lineno):
                return [node.name, *_enclosing(node, line)]
    return []


def _write(lab: MysteryLab, planted: Planted) -> None:
    """Write the lab's folder, all of it or nothing."""
    from labs.mystery.healthy import Running, probe_text

    lab.state.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=lab.state, prefix="staging-"))
    try:
        record: dict[str, Any] = {
            "attempt": planted.attempt,
            "digest": planted.digest,
            "symptoms": [one.symptom for one in planted.operators],
        }
        texts = {
            **planted.files,
            "probe.py": probe_text(planted.program, Running(planted.program).summary()),
            "checks.py": _CHECKS.format(name=lab.id, attempt=planted.attempt),
            "hints.md": hints_text(planted),
            RECORD: json.dumps(record, indent=2) + "\n",
        }
        for name, text in texts.items():
            (fresh / name).write_text(text, encoding="utf-8")
        fresh.chmod(0o755)
        shutil.rmtree(lab.folder, ignore_errors=True)
        fresh.rename(lab.folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _is_current(key: Key, lab: MysteryLab) -> bool:
    """Whether this release makes the same program of the same draw."""
    record = _read(lab.folder / RECORD)
    planted = drawn(key, int(record["attempt"]))
    return planted is not None and planted.digest == record["digest"]


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _how_to_make(key: Key | None) -> str:
    if key is None:
        return MAKES.format(options="")
    options = f" --seed {key.seed}"
    options += f" --level {key.level}" if key.level is not None else ""
    options += f" --chapter {key.chapter}" if key.chapter is not None else ""
    return MAKES.format(options=options)
