"""`lab dev store`: turns a whole file into the edit that is stored as a wrong fix or an alternative."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from labs.authoring.edits import Base, Edit, EditError, render_edit
from labs.authoring.make_edit import make_blocks
from labs.authoring.variants import ALTERNATIVE, base_files, read_variant, variant_path
from labs.grading.catalog import Lab
from labs.learner.atomic_file import write_atomically


def store_variant(
    lab: Lab, name: str, whole: str, *, file: str | None = None, refused_by: str | None = None, why: str | None = None
) -> Path:
    """Store the text `whole` of one editable file (default: the first) as the variant `name`, and return its path.

    The edit starts from the starter or the solution, whichever makes it smaller. An existing variant is replaced and
    keeps what is not given. Raises EditError where something is missing or the file differs from neither base; OSError.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise EditError(f"{name} is not a name for a variant: use lower-case letters, digits and _.")
    file = file or lab.editable[0]
    if file not in lab.editable:
        raise EditError(f"{file} is not one of the editable files of lab {lab.id}: {', '.join(lab.editable)}.")
    path = variant_path(lab, name)
    known = read_variant(path).edit.header if path.is_file() else {}
    header = {"refused_by": refused_by or known.get("refused_by", ""), "why": why or known.get("why", "")}
    if name.startswith(ALTERNATIVE):
        del header["refused_by"]
    for key, value in header.items():
        if not value:
            raise EditError(f"{name} is new: it needs --{key.replace('_', '-')}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render_edit(_smallest(lab, name, file, whole, header)).encode())
    return path


def _smallest(lab: Lab, name: str, file: str, whole: str, header: dict[str, str]) -> Edit:
    found = []
    for base in get_args(Base):
        texts = base_files(lab, base)
        others_fit = base == _own_base(name) or all(
            texts[other] == text for other, text in base_files(lab, _own_base(name)).items() if other != file
        )
        blocks = make_blocks(texts[file], whole)
        if others_fit and not blocks:
            raise EditError(f"The file is the same as the {base}'s {file}: there is nothing to store.")
        if others_fit:
            found.append(Edit(header, base, {file: blocks}))
    return min(found, key=lambda edit: sum(len(block.marked) + 1 for block in edit.blocks[file]))


def _own_base(name: str) -> Base:
    """Where the files that the variant does not edit come from, if starter and solution differ there too."""
    return "solution" if name.startswith(ALTERNATIVE) else "starter"
