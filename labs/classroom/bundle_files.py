"""The texts of a course pack: each is a pure function of what an installation has."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from importlib.metadata import distribution, requires, version
from pathlib import Path

import msgspec

from labs.grading.answers import packed
from labs.grading.catalog import Anchor, Lab
from labs.learner.hints import parse
from labs.learner.pack import Pack

_ROOT = Path(__file__).parents[2]
_DISTRIBUTION = "vla-debug-lab"
_SNIPPET = re.compile(r'^(?P<indent> *)--8<-- "(?P<file>[^":]+)(?::(?P<section>[a-z0-9_]+))?"$', re.MULTILINE)
_FIGURE = re.compile(r"!\[[^\]]*\]\((?P<file>figures/[^)]+)\)")
_DIAGNOSE = re.compile(r"\s+[^.]*`lab diagnose \d\d`[^.]*\.")
"""A sentence of a hint that suggests a command that a course pack does not have."""
_LEFT_OUT = "This hint says what is wrong, and it is not part of this course pack. Ask your instructor."
_CHECKS = '''"""The checks of this lab, compressed: reading or searching the course does not show what they expect."""

import base64
import zlib

_SOURCE = b"{source}"
exec(compile(zlib.decompress(base64.b85decode(_SOURCE)), __file__, "exec"))
'''
_PYPROJECT = """[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "{version}"
license = "Apache-2.0"
license-files = ["LICENSE"]
requires-python = ">=3.11"
dependencies = [
{dependencies}
]

[project.scripts]
lab = "labs.cli:main"
debugkit = "debugkit.cli:main"

[project.entry-points.pytest11]
debugkit = "debugkit.integrations.pytest_plugin"

[tool.hatch.build.targets.wheel]
packages = ["labs", "debugkit"]
force-include = {{ "pack.toml" = "labs/pack.toml" }}
"""
_README = """# {name} {version}

Broken models to fix, and the grader that checks the fixes. In this folder:

    python3 -m venv .venv
    .venv/bin/pip install -e .
    .venv/bin/lab list

`lab start {first}` copies the files of a lab into your workspace, `lab run {first}` shows the symptom,
`lab hint {first}` helps, and `lab grade {first}` checks your fix. The pack has no solutions and no diagnosis.
Each lab's folder has its lesson, up to the diagnosis.

| lab | title | minutes |
|---|---|---:|
{rows}
"""


def packed_checks(source: bytes) -> str:
    """A checks.py that runs the given one."""
    return _CHECKS.format(source=packed(source).decode())


def short_hints(markdown: str, count: int) -> str:
    """The hints, with a sentence in place of those after `count`, and without `lab diagnose`. Raises HintsError."""
    told = [(one, _DIAGNOSE.sub("", one.text)) for one in parse(markdown, "hints.md")]
    shown = [(one.title, text if one.level <= count else _LEFT_OUT) for one, text in told]
    return "\n".join(f"## {level} {title}\n\n{text}\n" for level, (title, text) in enumerate(shown, start=1))


def lab_toml(lab: Lab, labs: Collection[str]) -> str:
    """The lab's declaration without what names the fault: its rules, its topics and the documented case.

    `labs`: the ids of the labs in the pack.
    """
    short = msgspec.structs.replace(
        lab,
        rules=(),
        notes_topics=(),
        prerequisites=tuple(one for one in lab.prerequisites if one in labs),
        anchor=Anchor(bug="Not part of this course pack.", project="", urls=()),
    )
    # TOML has no null, and no field of a lab is None.
    return _as_toml(msgspec.to_builtins(short))


def lesson_without_fix(page: Path) -> tuple[str, list[Path]]:
    """The lesson up to its diagnosis, with included files in place, and the figures that it shows.

    Raises OSError.
    """
    text = page.read_text(encoding="utf-8").partition("\n## Diagnose")[0] + "\n"
    text = _SNIPPET.sub(_included, text)
    return text, [Path(found["file"]) for found in _FIGURE.finditer(text)]


def license_text() -> str:
    """The license, of a clone or of an installed distribution. Raises OSError."""
    path = _ROOT / "LICENSE"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    found = next(file for file in distribution(_DISTRIBUTION).files or () if file.name == "LICENSE")
    return found.read_text(encoding="utf-8")


def pyproject(labs: Sequence[Lab]) -> str:
    """The pack installs with what its labs need, under the same name as the labs, so that one replaces the other."""
    from packaging.requirements import Requirement

    extras = ("", "labs", *{extra for lab in labs for extra in lab.extras})
    wanted: dict[str, str] = {}
    for line in requires(_DISTRIBUTION) or ():
        one = Requirement(line)
        needed = any(one.marker is None or one.marker.evaluate({"extra": extra}) for extra in extras)
        if needed and one.name not in (_DISTRIBUTION, "debugkit-torch"):
            wanted[one.name] = f'    "{one.name}{one.specifier}",'
    dependencies = "\n".join(wanted[name] for name in sorted(wanted))
    return _PYPROJECT.format(name=_DISTRIBUTION, version=version(_DISTRIBUTION), dependencies=dependencies)


def readme(pack: Pack, labs: Sequence[Lab]) -> str:
    """How a learner installs the pack, and its labs."""
    rows = "\n".join(f"| {lab.id} | {lab.title} | {lab.minutes} |" for lab in labs)
    return _README.format(name=pack.name, version=pack.version, first=labs[0].id, rows=rows)


def _included(found: re.Match[str]) -> str:
    """The file or section that a page includes, indented as the line that names it."""
    path = next(one for one in (_ROOT / "docs" / "snippets" / found["file"], _ROOT / found["file"]) if one.is_file())
    text = path.read_text(encoding="utf-8")
    if found["section"]:
        text = text.partition(f"--8<-- [start:{found['section']}]\n")[2]
        text = text.partition(f"--8<-- [end:{found['section']}]")[0].rpartition("\n")[0]
    return "\n".join(f"{found['indent']}{line}".rstrip() for line in text.splitlines())


def _as_toml(fields: dict[str, object]) -> str:
    tables = {name: value for name, value in fields.items() if isinstance(value, dict) or name == "questions"}
    lines = [f"{name} = {_value(value)}" for name, value in fields.items() if name not in tables]
    for name, table in tables.items():
        for one in table if isinstance(table, (list, tuple)) else [table]:
            lines += ["", f"[[{name}]]" if name == "questions" else f"[{name}]"]
            lines += [f"{key} = {_value(value)}" for key, value in one.items()]  # type: ignore[attr-defined]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    # Strings, numbers, true and false and lists of them are written alike in JSON and in TOML.
    return msgspec.json.encode(value).decode()
