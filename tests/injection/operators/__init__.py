"""Fault operators: edits of a program's text that a person makes by mistake, one file for each family.

An operator is written from what people get wrong. It says which codes name the fault exactly; none where debugkit has
no rule for it, so that it can only be missed, or seen by a consequence.
"""

from __future__ import annotations

import difflib
import importlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from debugkit.finding import Finding
from injection.architectures import Composed

Edit = tuple[str, str]
"""A regular expression, and what replaces one of its matches; `^` and `$` are the ends of a line."""
FAMILIES = {
    "shapes": "Shapes and devices",
    "gradients": "Gradients and parameters",
    "numerics": "Numerics",
    "data": "Data and tokens",
    "actions": "Actions",
    "loop": "Training loop",
    "memory": "Memory",
    "reproducibility": "Reproducibility",
}


@dataclass(frozen=True)
class Operator:
    """One kind of mistake."""

    name: str
    family: str
    codes: tuple[str, ...]
    what: str
    variants: tuple[tuple[Edit, ...], ...]
    """Ways to make it, tried in a random order: all edits of a variant are made, or it does not apply."""
    tasks: tuple[str, ...] = ()
    """The tasks of the programs in which it is a fault; all if empty."""
    lines: str = ""
    """Lines of the planted program that also count as the place."""
    modules: str = ""
    """Modules or parameters that also count as the place."""
    where: str = "values"
    """How its effect is measured: `values`, `device` (the loss raises on another device) or `repeat` (two runs differ)."""

    def plant(self, program: Composed, chance: random.Random) -> str | None:
        """The program's text with the fault, or None if it does not apply."""
        if self.tasks and program.task not in self.tasks:
            return None
        for variant in chance.sample(self.variants, len(self.variants)):
            text: str | None = program.text
            for edit in variant:
                text = text and _edited(text, edit, chance)
            if text and text != program.text:
                return text
        return None

    def is_placed(self, finding: Finding, before: str, after: str, file: str) -> bool:
        """Whether a finding names a changed line, or a module, parameter, attribute or input of these lines."""
        lines, names, keys = place(before, after)
        lines |= {
            number
            for number, line in enumerate(after.splitlines(), start=1)
            if self.lines and re.search(self.lines, line)
        }
        at = finding.location
        if at.file is not None and Path(at.file) == Path(file) and at.line in lines:
            return True
        if at.input is not None and at.input.split(".")[0] in keys:
            return True
        told = re.findall(r"`([\w.]+)`", finding.message)
        parts = {part for path in (at.module, at.parameter, *told) if path for part in path.split(".")}
        paths = [path for path in (at.module, at.parameter) if path]
        return bool(parts & (names | keys)) or bool(
            self.modules and any(re.search(self.modules, path) for path in paths)
        )


def place(before: str, after: str) -> tuple[set[int], set[str], set[str]]:
    """The changed lines of `after`, with those beside a deletion, and the names and keys that they mention."""
    old, new = before.splitlines(), after.splitlines()
    lines: set[int] = set()
    mentioned: list[str] = []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        lines |= set(range(j1 + 1, j2 + 1)) if j2 > j1 else {j1, j1 + 1}
        mentioned += [*old[i1:i2], *new[j1:j2]]
    text = "\n".join(mentioned)
    names = set(re.findall(r"\b(?:self|model)\.([a-z_]\w*)", text)) - {"parameters", "named_parameters", "normaliser"}
    names |= set(re.findall(r"\b(\w+)(?:\[[^]]*\])?(?:\.append\(| [+]?= )", text)) - {"self", "x", "loss"}
    return lines, names, set(re.findall(r'"(\w+)"', text))


_OPERATORS: dict[str, Operator] = {}


def operator(
    family: str, name: str, codes: str, what: str, *variants: Sequence[Edit], tasks: Sequence[str] = (), **places: str
) -> None:
    """Register an operator; `codes` is a list with spaces."""
    if name in _OPERATORS:
        raise ValueError(f"There are two operators named {name}.")
    made = tuple(tuple(variant) for variant in variants)
    _OPERATORS[name] = Operator(name, family, tuple(codes.split()), what, made, tuple(tasks), **places)


def operators() -> dict[str, Operator]:
    """Every operator by its name, in the order of the families."""
    for path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
        importlib.import_module(f"injection.operators.{path.stem}")
    order = list(FAMILIES)
    return dict(sorted(_OPERATORS.items(), key=lambda item: (order.index(item[1].family), item[0])))


def _edited(text: str, edit: Edit, chance: random.Random) -> str | None:
    matches = list(re.finditer(edit[0], text, re.MULTILINE))
    if not matches:
        return None
    chosen = chance.choice(matches)
    return text[: chosen.start()] + chosen.expand(edit[1]) + text[chosen.end() :]
