"""The capstones, read from each `capstone.toml`, as labs that the ordinary grader, workspace and commands take.

labs/capstones/capstone_97_slug/
  capstone.toml      what is graded, and which checks belong to which fault
  *.py, *.yaml …     the project as it is handed out; `editable` lists these files
  handout/           what the learner also receives: `brief.md`, logs, curves, films, the template of a post-mortem
  probe.py checks.py hints.md wrong_fixes/     as in a lab
solutions/capstone_97_slug/
  the corrected files, `post_mortem.md`: the reference post-mortem
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from labs.grading import catalog
from labs.grading.catalog import Anchor, CatalogError, Chapter, Lab

ROOT = Path(__file__).parent
FILE = "capstone.toml"


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One fault of a capstone. It is gone when every check in `checks` passes."""

    checks: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Ids of checks. A check that belongs to no fault is a promise of the project that a fix must keep."""
    what: str
    """What it was, one sentence; shown when the whole capstone is passed or given up."""


class Capstone(Lab, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One capstone, as declared in its `capstone.toml`."""

    id: Annotated[str, msgspec.Meta(pattern=r"^(9[7-9]|c[1-3])$")]
    """97 to 99, c1 to c3."""
    kind: Literal["incident", "regression", "review"]
    """An incident in a project, the commit to find in a history, or a change to review."""
    faults: Annotated[tuple[Fault, ...], msgspec.Meta(min_length=1)]
    """In the order in which they come to light."""
    chapter: Chapter = "loop"
    """Not shown: the faults are of several chapters."""
    anchor: Anchor = Anchor(bug="", project="", urls=())
    """The documented cases are in the reference post-mortem."""

    @property
    def checks_of_faults(self) -> frozenset[str]:
        """The ids of the checks that belong to a fault. Every other check is a promise, or an outcome."""
        return frozenset(name for fault in self.faults for name in fault.checks)

    @property
    def name(self) -> str:
        """The folder's name, e.g. `capstone_97_slug`."""
        return f"capstone_{self.id}_{self.slug}"

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return ROOT / self.name

    @property
    def solution(self) -> Path:
        """Where the corrected files and the reference post-mortem are."""
        return catalog.SOLUTIONS_ROOT / self.name

    @property
    def lesson(self) -> str:
        """The page about capstones, below `docs/`: none of them has a lesson."""
        return "guides/capstones"


@functools.cache
def all_capstones() -> tuple[Capstone, ...]:
    """Every capstone, in order. Raises CatalogError."""
    return tuple(_load(path) for path in sorted(ROOT.glob(f"capstone_*/{FILE}")))


def find_capstone(number: str) -> Capstone | None:
    """The capstone named by `97`, `c1`, `C1`, its slug or its folder's name; None if there is none."""
    wanted = number.lower().removeprefix("capstone_").removeprefix("capstone")
    return next((one for one in all_capstones() if wanted in (one.id, one.slug, f"{one.id}_{one.slug}")), None)


def _load(path: Path) -> Capstone:
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=Capstone)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CatalogError(f"{path}: {error}") from None
    if found.name != path.parent.name:
        raise CatalogError(f"{path}: id and slug say the folder is {found.name}, but it is {path.parent.name}.")
    return found
