"""The pack that the labs come from, as its `pack.toml` declares it. The labs of the lab itself are in no pack."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from labs.grading import catalog
from labs.grading.catalog import CatalogError
from labs.grading.errors import UsageError
from labs.learner.pack_source import PACK


class Pack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A collection of labs."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
    """Lower-case letters, digits and hyphens; a learner's progress is kept under it."""
    version: Annotated[str, msgspec.Meta(pattern=r"^[0-9][0-9A-Za-z.+-]{0,31}$")]
    """The pack's own version."""
    requires: str = ""
    """The versions of vla-debug-lab that it works with, such as `>=0.1,<0.2`."""
    solutions: bool = True
    """False for a course pack: it has no solutions, no wrong fixes and no diagnosis."""


def read_pack(path: Path) -> Pack:
    """Read and validate one `pack.toml`. Raises CatalogError, OSError."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Pack)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CatalogError(f"{path}: {error}") from None


def checked(pack: Pack) -> Pack:
    """The same pack. Raises UsageError if a field is not valid."""
    try:
        return msgspec.convert(msgspec.to_builtins(pack), Pack)
    except msgspec.ValidationError as error:
        raise UsageError(f"This is not a valid pack: {error}.") from None


def current_pack() -> Pack | None:
    """The pack whose labs the catalog reads; None for the labs of vla-debug-lab. Raises CatalogError."""
    # An installed course pack has the file inside the package.
    for folder in (catalog.LABS_ROOT, catalog.LABS_ROOT.parent):
        if (folder / PACK).is_file():
            return read_pack(folder / PACK)
    return None


def is_foreign() -> bool:
    """Whether the labs come from a pack elsewhere, with `--pack`. Raises CatalogError."""
    return current_pack() is not None and not are_own()


def are_own() -> bool:
    """Whether the labs are those of this installation, and not of another folder."""
    return Path(__file__).parents[1].resolve() == catalog.LABS_ROOT


def require_version(pack: Pack) -> None:
    """Raise UsageError if the pack needs another version of vla-debug-lab, CatalogError if `requires` is malformed."""
    if not pack.requires:
        return
    from importlib.metadata import version

    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        wanted = SpecifierSet(pack.requires)
    except InvalidSpecifier:
        raise CatalogError(
            f"{PACK}: requires = {pack.requires!r} is not a list of versions like `>=0.1,<0.2`."
        ) from None
    here = version("vla-debug-lab")
    if not wanted.contains(here, prereleases=True):
        raise UsageError(
            f"The pack {pack.name} {pack.version} requires vla-debug-lab {pack.requires}, and this is {here}. "
            f"Install `vla-debug-lab{pack.requires}`."
        )


def has_solutions() -> bool:
    """Whether the labs come with their solutions, and so with a diagnosis. Raises CatalogError."""
    pack = current_pack()
    return pack is None or pack.solutions


def require_solutions(what: str) -> None:
    """Raise UsageError for a command that needs `what`, such as "solutions", if the pack has none."""
    pack = current_pack()
    if pack is not None and not pack.solutions:
        raise UsageError(f"The course pack {pack.name} has no {what}: ask your instructor.")
