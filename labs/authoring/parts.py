"""What each check, each submission and the recognisers of a lab depend on, by hashes.

After a change of one check, a lab needs no grade of a wrong fix that another check refuses. That holds because each
check draws its inputs from a stream of its own: its verdict does not depend on the other checks. Only a submission
that remembers what an earlier check asked of it could tell; `lab dev verify NN --full` grades everything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from labs.authoring.canonical import canonical_form
from labs.authoring.content_hash import NOT_GRADED, PROSE, RECORDS, digest, form_of_facts, form_of_variant, lab_files
from labs.authoring.edits import Base, EditError
from labs.authoring.imports import PACKAGE, shared_module, with_shared_modules
from labs.authoring.used_definitions import WHOLE, Use, used_definitions, used_of_debugkit
from labs.authoring.variants import base_files, read_variant, variant_paths
from labs.grading.catalog import Lab

CHECKS, PROBE = "checks.py", "probe.py"
STARTER, SOLUTION = "the starter", "the solution"


class Parts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """SHA-256 of each part of what `Content.lab` hashes as a whole."""

    checks: dict[str, str]
    """By the check's id: its function, what it uses of other files, and the functions of the probe that it names."""
    recognisers: str
    submissions: dict[str, str]
    """By the label of the starter, the solution and each variant."""
    rest: str
    """Everything else: settings, data, and the modules that the editable files import."""


@dataclass(frozen=True)
class Changes:
    """What differs between two versions of a lab whose old submissions are the same."""

    checks: frozenset[str]
    """The ids of checks that are new, gone or different."""
    added: frozenset[str]
    """The labels of new variants."""
    names: bool
    """Whether a submission may be recognised as another wrong fix than before."""


def parts_of(lab: Lab) -> Parts:
    """The parts as the files are now. Raises OSError, SyntaxError, EditError."""
    checks = lab.folder / CHECKS
    declared = _declared(checks)
    return Parts(
        checks={name: digest(_forms(lab, [name])) for name in declared["check"]},
        recognisers=digest(_forms(lab, declared["wrong_fix"])),
        submissions=_submissions(lab),
        rest=digest(_rest(lab)),
    )


def changes_between(lab: Lab, before: Parts, now: Parts) -> Changes | None:
    """What changed; None where everything must be graded, as after a change of the solution.

    Raises OSError, SyntaxError.
    """
    if before.rest != now.rest or not before.submissions.items() <= now.submissions.items():
        return None
    either = before.checks.keys() | now.checks.keys()
    checks = frozenset(name for name in either if before.checks.get(name) != now.checks.get(name))
    names = before.recognisers != now.recognisers or _may_rename(lab, checks)
    return Changes(checks, frozenset(now.submissions.keys() - before.submissions.keys()), names)


def _may_rename(lab: Lab, checks: Iterable[str]) -> bool:
    """Whether a recogniser reads what one of these checks measured, or a probe, which any of them may have called."""
    sources = _closure(lab, _declared(lab.folder / CHECKS)["wrong_fix"])
    texts = {text for source in sources.values() for text in _texts(source)}
    if texts & _functions(lab.folder / PROBE).keys():
        return bool(list(checks))
    return any(check in text for check in checks for text in texts)


def _declared(checks: Path) -> dict[str, list[str]]:
    """The names of the functions that `@check` and `@wrong_fix` declare."""
    found: dict[str, list[str]] = {"check": [], "wrong_fix": []}
    for name, function in _functions(checks).items():
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name):
                found.get(decorator.func.id, []).append(name)
    return found


def _functions(path: Path) -> dict[str, ast.FunctionDef]:
    if not path.is_file():
        return {}
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {one.name: one for one in body if isinstance(one, ast.FunctionDef)}


def _forms(lab: Lab, names: Iterable[str]) -> dict[str, str]:
    return {
        path.relative_to(PACKAGE).as_posix() if PACKAGE in path.parents else path.name: canonical_form(
            path.name, source.encode(), PROSE if path.name == CHECKS else None
        )
        for path, source in _closure(lab, names).items()
    }


def _closure(lab: Lab, names: Iterable[str]) -> dict[Path, str]:
    """The source of what these functions of checks.py use, and of the probe's functions that a text in it names."""
    checks, probe = lab.folder / CHECKS, lab.folder / PROBE
    found = used_definitions([(checks, name) for name in names], _resolve, split_imports=True)
    texts = {text for source in found.values() for text in _texts(source)}
    asked = [(probe, name) for name in _functions(probe) if name in texts]
    return found | (used_definitions(asked, _resolve, split_imports=True) if asked else {})


def _resolve(module: str, name: str) -> Use | None:
    """What is used of a module that labs share; the library, the grader and debugkit count as a whole elsewhere."""
    whole = shared_module(f"{module}.{name}") if module == PACKAGE.name else None
    if whole is not None:
        return whole, WHOLE
    path = shared_module(module)
    return None if path is None else (path, name)


def _texts(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _submissions(lab: Lab) -> dict[str, str]:
    found = {}
    bases: dict[str, Base] = {STARTER: "starter", SOLUTION: "solution"}
    for label, base in bases.items():
        texts = base_files(lab, base)
        found[label] = digest({name: canonical_form(name, text.encode()) for name, text in texts.items()})
    for path in variant_paths(lab):
        try:
            variant = read_variant(path)
        except EditError:
            found[path.name] = digest({"": path.read_text(encoding="utf-8", errors="replace")})
            continue
        names = repr((variant.named, variant.near_miss))
        found[variant.label] = digest({"": form_of_variant(lab, path), "names": names})
    return found


def _rest(lab: Lab) -> dict[str, str]:
    forms = form_of_facts(lab)
    for kind, folder in (("lab", lab.folder), ("solution", lab.solution)):
        for name, content in lab_files(folder):
            own = name in (*RECORDS, *NOT_GRADED, CHECKS, PROBE, *lab.editable) or name.endswith(".diff")
            if not own:
                forms[f"{kind}/{name}"] = canonical_form(name, content)
    edited = [lab.folder / name for name in lab.editable if name.endswith(".py")]
    for path in with_shared_modules(edited, PACKAGE):
        if path not in edited:
            forms[path.relative_to(PACKAGE).as_posix()] = canonical_form(path.name, path.read_bytes())
    every = with_shared_modules([lab.folder / CHECKS, lab.folder / PROBE, *edited], PACKAGE)
    for path, source in used_of_debugkit(every).items():
        forms[f"debugkit/{path.name}"] = forms.get(f"debugkit/{path.name}", "") + canonical_form(
            path.name, source.encode()
        )
    return forms
