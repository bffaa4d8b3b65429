"""`debugkit dev rule`: create a rule's folder and its two fixtures in a clone. Does not import torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from string import Template

from debugkit.rule import FAMILIES, all_rules

SKELETON = Path(__file__).parent / "rule_skeleton"


class NewRuleError(Exception):
    """The rule cannot be created. The message says what to pass instead."""


@dataclass(frozen=True)
class NewRule:
    """A code, `DK316`, and the name of a fault, `labels-shuffled`."""

    code: str
    name: str

    @property
    def folder(self) -> str:
        """The folder below `debugkit/rules`."""
        return f"{self.code.lower()}_{self.name.replace('-', '_')}"

    @property
    def observation(self) -> str:
        """A placeholder name for the observation's class."""
        return "".join(part.capitalize() for part in self.name.split("-"))


def create(new: NewRule, root: Path) -> list[Path]:
    """Write the rule's folder and its fixtures below `root`, a clone. Raises NewRuleError, OSError."""
    new = NewRule(new.code.upper(), new.name.lower().replace("_", "-"))
    _validate(new, root)
    package, fixtures = root / "debugkit" / "rules" / new.folder, root / "tests" / "rules" / new.code.lower()
    files = {
        "__init__.py": package / "__init__.py",
        "measure.py": package / "measure.py",
        "fires.py": fixtures / "fires.py",
        "silent.py": fixtures / "silent.py",
    }
    for path in files.values():
        if path.exists():
            raise NewRuleError(f"{path} exists already; nothing was written.")
    values = {"code": new.code, "name": new.name, "folder": new.folder, "observation": new.observation}
    for name, path in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (SKELETON / f"{name}.template").read_text(encoding="utf-8")
        path.write_text(Template(text).substitute(values), encoding="utf-8")
    return list(files.values())


def _validate(new: NewRule, root: Path) -> None:
    if not re.fullmatch(r"DK\d{3}", new.code):
        raise NewRuleError(f"{new.code!r} is not a rule code: use DK and three digits, for example DK316.")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", new.name):
        raise NewRuleError(f"{new.name!r} is not a rule name: use lower-case words joined by hyphens.")
    if not (root / "debugkit" / "rules").is_dir() or not (root / "tests" / "rules").is_dir():
        raise NewRuleError(f"{root} is not a clone of the repository: run the command in its root.")
    for known in all_rules():
        if known.code == new.code:
            raise NewRuleError(f"{new.code} is taken by {known.name}. The next free code is {_next_free(new.code)}.")
        if known.name == new.name:
            raise NewRuleError(f"{known.code} has the name {new.name} already.")


def _next_free(code: str) -> str:
    family = code[:3]
    taken = {known.code for known in all_rules()}
    free = (f"{family}{number:02d}" for number in range(1, 100))
    chapter = FAMILIES[int(code[2])]
    return next((each for each in free if each not in taken), f"none: the family {chapter} is full")
