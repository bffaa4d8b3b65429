"""Paths through the labs: `paths.toml` beside the labs. A pack may have its own, and one without it has no paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from labs.grading import catalog
from labs.grading.catalog import CatalogError, Lab
from labs.grading.errors import UsageError

PATHS = "paths.toml"
"""The file's name, in the folder of the labs."""

_LabId = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{2}$")]


class LearningPath(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Labs in the order in which a learner takes them."""

    title: str
    """Whom it is for, or what it is about, in a few words."""
    about: str
    """One sentence."""
    labs: tuple[_LabId, ...]
    """Ids of labs. One without a lab is ignored until the lab exists."""

    def of(self, labs: Sequence[Lab]) -> list[Lab]:
        """The labs of the path that exist, in its order."""
        by_id = {lab.id: lab for lab in labs}
        return [by_id[number] for number in self.labs if number in by_id]


def all_paths() -> dict[str, LearningPath]:
    """The paths by their names, in the order of the file. Raises CatalogError, OSError."""
    path = catalog.LABS_ROOT / PATHS
    if not path.is_file():
        return {}
    try:
        return msgspec.toml.decode(path.read_bytes(), type=dict[str, LearningPath])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CatalogError(f"{path}: {error}") from None


def find_path(name: str) -> LearningPath:
    """The path of that name. Raises UsageError, which lists the names, CatalogError, OSError."""
    there = all_paths()
    if name in there:
        return there[name]
    if not there:
        raise UsageError(f"There is no path {name}: these labs have no paths.")
    raise UsageError(f"There is no path {name}. The paths are: {', '.join(there)}.")
