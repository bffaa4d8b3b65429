"""A lab's variants: its wrong fixes and alternative solutions, each stored as an edit of the starter or the solution.

`wrong_fixes/<name>.diff` beside the starter is a wrong fix, `alternative_<name>.diff` beside the solution is another
correct fix. The file's stem is the variant's name; the recogniser of a wrong fix has the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labs.authoring.edits import SUFFIX, Base, Edit, EditError, apply_blocks, parse_edit
from labs.grading.catalog import Lab

WRONG_FIXES, ALTERNATIVE = "wrong_fixes", "alternative_"


@dataclass(frozen=True)
class Variant:
    """One wrong fix (`wrong`) or alternative. `label` is how messages name its file."""

    name: str
    label: str
    wrong: bool
    edit: Edit

    @property
    def refused_by(self) -> str | None:
        """The id of the check that must refuse this wrong fix."""
        return self.edit.header.get("refused_by") or None

    @property
    def named(self) -> str | None:
        """The wrong fix of which this one is another spelling, and whose name it must get."""
        return self.edit.header.get("named") or None

    @property
    def near_miss(self) -> str | None:
        """The wrong fix that this one resembles and whose name it must not get."""
        return self.edit.header.get("near_miss") or None

    @property
    def why(self) -> str | None:
        """Why the wrong fix is wrong, or the alternative is correct, in one sentence."""
        return self.edit.header.get("why") or None

    def files(self, lab: Lab) -> dict[str, str]:
        """The whole submission: the base's editable files, with this variant's edits. Raises EditError, OSError."""
        texts = base_files(lab, self.edit.base)
        for file, blocks in self.edit.blocks.items():
            if file not in texts:
                there = ", ".join(lab.editable)
                raise EditError(f"{self.label} edits {file}, which is not one of the editable files: {there}.")
            texts[file] = apply_blocks(texts[file], blocks, f"{self.edit.base}/{file}", self.label)
        return texts


def wrong_fixes(lab: Lab) -> list[Variant]:
    """The lab's wrong fixes, by name. Raises EditError for a file that cannot be read as an edit."""
    return [read_variant(path) for path in variant_paths(lab) if path.parent.name == WRONG_FIXES]


def alternatives(lab: Lab) -> list[Variant]:
    """The lab's alternative solutions, by name. Raises EditError for a file that cannot be read as an edit."""
    return [read_variant(path) for path in variant_paths(lab) if path.parent.name != WRONG_FIXES]


def find_variant(lab: Lab, name: str) -> Variant:
    """The wrong fix or alternative of that name. Raises EditError if there is none, or if it cannot be read."""
    for path in variant_paths(lab):
        if path.stem == name:
            return read_variant(path)
    there = ", ".join(path.stem for path in variant_paths(lab)) or "none"
    raise EditError(f"Lab {lab.id} has no wrong fix or alternative {name}. There are: {there}.")


def variant_paths(lab: Lab) -> list[Path]:
    """The files of all variants: first the wrong fixes, then the alternatives."""
    found = sorted((lab.folder / WRONG_FIXES).glob(f"*{SUFFIX}"))
    return found + sorted(lab.solution.glob(f"{ALTERNATIVE}*{SUFFIX}"))


def variant_path(lab: Lab, name: str) -> Path:
    """Where the variant of that name is stored; `alternative_…` is an alternative, anything else a wrong fix."""
    folder = lab.solution if name.startswith(ALTERNATIVE) else lab.folder / WRONG_FIXES
    return folder / f"{name}{SUFFIX}"


def read_variant(path: Path) -> Variant:
    """One stored variant. Raises EditError, OSError."""
    wrong = path.parent.name == WRONG_FIXES
    label = f"{WRONG_FIXES}/{path.name}" if wrong else path.name
    return Variant(path.stem, label, wrong, parse_edit(path.read_text(encoding="utf-8"), label))


def not_edits(lab: Lab) -> Iterator[Path]:
    """Files where variants are stored that are not edits, such as a whole file that was copied there."""
    stored = [*(lab.folder / WRONG_FIXES).glob("*"), *lab.solution.glob(f"{ALTERNATIVE}*")]
    yield from sorted(path for path in stored if path.is_file() and path.suffix != SUFFIX)


def base_files(lab: Lab, base: Base) -> dict[str, str]:
    """The editable files of the starter or the solution, by name. Raises OSError."""
    folder = lab.folder if base == "starter" else lab.solution
    return {name: (folder / name).read_text(encoding="utf-8") for name in lab.editable}
