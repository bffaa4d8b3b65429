"""`lab --pack DIR|URL@COMMIT …`: takes the labs of one command from a pack.

The catalog reads where the labs are when it is imported, so this runs first, and imports nothing that imports it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from labs.cli.take_option import take_option
from labs.learner.pack_source import PACK, begin_pack, is_address, pack_folder, seen_before

OPTION = "--pack"
TRUST = "The checks of a pack run in the grader's own process, with your rights: use only packs that you trust."


def use_pack(arguments: Sequence[str]) -> tuple[list[str], str]:
    """Make the pack's labs the catalog's, for this process and its children.

    Returns the arguments without the option, and a sentence that says why there is no pack, which is otherwise empty.
    """
    given, rest = take_option(OPTION, arguments)
    if given is None:
        return rest, ""
    try:
        if not given:
            return rest, "Which pack? `--pack DIR` takes a folder, `--pack URL@COMMIT` a Git repository."
        _use(given, rest)
    except OSError as error:
        return rest, f"{error.filename or given}: {error.strerror or error}."
    except KeyboardInterrupt:
        return rest, "interrupted. Nothing is left running."
    except Exception as error:
        # The types of the other errors are in modules that import the catalog.
        if type(error).__name__ not in ("PackError", "CatalogError", "UsageError"):
            raise
        return rest, str(error)
    return rest, ""


def _use(given: str, rest: list[str]) -> None:
    if not is_address(given) and rest[:2] == ["dev", "new"]:
        begin_pack(Path(given))
    folder = pack_folder(given)
    os.environ["VLA_LABS_ROOT"] = str(folder / "labs")
    os.environ["LAB_PACK"] = given  # what the commands that are printed begin with
    from labs.learner.pack import read_pack, require_version

    pack = read_pack(folder / PACK)
    require_version(pack)
    if not seen_before(given if is_address(given) else str(folder)):
        sys.stderr.write(f"lab: {TRUST} This one is {pack.name} {pack.version}, in {folder}.\n")
