"""Every mutant of a lab's solution, without those that equal the solution, the starter or each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labs.authoring.mutation.catalogue import Operator, all_operators
from labs.authoring.mutation.hunks import OPERATOR as ONE_HUNK
from labs.authoring.mutation.hunks import partly_applied
from labs.authoring.mutation.identity import Ids
from labs.authoring.mutation.normal_form import normal_form
from labs.authoring.mutation.python_source import PythonSource
from labs.authoring.mutation.yaml_source import YamlSource
from labs.grading.catalog import Lab

Files = dict[str, str]


@dataclass(frozen=True)
class Mutant:
    """One change of the solution. `files` holds the whole submission, `line` is the solution's line in `file`."""

    id: str
    operator: str
    file: str
    line: int
    summary: str
    files: Files


def mutants_of(lab: Lab) -> list[Mutant]:
    """Every mutant of the lab's solution, in the order of the catalogue. Raises OSError."""
    return list(_different(read(lab, lab.folder), read(lab, lab.solution)))


def read(lab: Lab, folder: Path) -> Files:
    """The editable files' text by name."""
    return {name: (folder / name).read_text(encoding="utf-8") for name in lab.editable}


def mutants_from(starter: Files, solution: Files) -> Iterator[Mutant]:
    """Every mutant, equal ones included. Raises ValueError for an operator that makes a file that does not parse."""
    ids = Ids()
    yield from (Mutant(*hunk) for hunk in partly_applied(starter, solution, ids))
    sources = {name: _parsed(name, text, starter.get(name, "")) for name, text in solution.items()}
    for operator in all_operators():
        for name, source in sources.items():
            if _language(name) == operator.language:
                yield from _by(operator, source, solution, ids)


def _by(operator: Operator, source: PythonSource | YamlSource, solution: Files, ids: Ids) -> Iterator[Mutant]:
    for edit in operator.make(source):
        files = {**solution, source.file: edit.apply(source.text)}
        name = ids.of(operator.name, source.file, edit)
        yield Mutant(name, operator.name, source.file, edit.line, edit.summary, files)


def _different(starter: Files, solution: Files) -> Iterator[Mutant]:
    seen = {_form(starter), _form(solution)}
    for mutant in mutants_from(starter, solution):
        try:
            form = _form(mutant.files)
        except SyntaxError as error:
            if mutant.operator == ONE_HUNK:
                continue  # a hunk need not parse without its neighbours
            raise ValueError(f"{mutant.operator} made {mutant.file} unreadable: {mutant.summary} ({error})") from error
        if form not in seen:
            seen.add(form)
            yield mutant


def _form(files: Files) -> tuple[str, ...]:
    return tuple(normal_form(text) if _language(name) == "python" else _yaml_form(text) for name, text in files.items())


def _yaml_form(text: str) -> str:
    import yaml

    return repr(yaml.safe_load(text))


def _parsed(name: str, text: str, starter: str) -> PythonSource | YamlSource:
    return (PythonSource if _language(name) == "python" else YamlSource)(name, text, starter)


def _language(name: str) -> str:
    return "python" if name.endswith(".py") else "yaml"
