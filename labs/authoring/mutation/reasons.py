"""`equivalent_mutants.toml` beside a lab: why a mutant that no check refuses is no worse than the solution.

drop_term-d6163504 = "GRIPPER_SHARE is 1.0."
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection

from labs.grading.catalog import Lab

FILE = "equivalent_mutants.toml"


class ReasonsError(Exception):
    """The file cannot be read, or names a mutant that does not exist; the message says which."""


def read_reasons(lab: Lab, ids: Collection[str]) -> dict[str, str]:
    """The reason for each equivalent mutant by its id; `ids` are those of all mutants. Raises ReasonsError."""
    path = lab.folder / FILE
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ReasonsError(f"{path} cannot be read: {error}.") from None
    for name, reason in entries.items():
        if not isinstance(reason, str) or not reason.strip():
            raise ReasonsError(f"{path}: {name} needs a reason, as a text.")
        if name not in ids:
            raise ReasonsError(
                f"{path}: {name} is no mutant of lab {lab.id}. The line it changed may have been edited: "
                f"`lab dev mutate {lab.id}` lists the mutants that no check refuses now."
            )
    return entries
