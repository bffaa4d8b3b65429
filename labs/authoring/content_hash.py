"""What a verification was made of: a hash over every file that decides a lab's grades."""

from __future__ import annotations

import hashlib
from pathlib import Path

from labs.grading.catalog import Lab

RESULT = "verified.json"


def content_hash(lab: Lab) -> str:
    """SHA-256 over the lab's and its solution's files, by name and content; the recorded result itself is left out."""
    digest = hashlib.sha256()
    for root in (lab.folder, lab.solution):
        for path in sorted(root.rglob("*")):
            if path.is_file() and _counts(path):
                content = path.read_bytes()
                digest.update(f"{root.name}/{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
                digest.update(content)
    return digest.hexdigest()


def _counts(path: Path) -> bool:
    return path.name != RESULT and "__pycache__" not in path.parts and not path.name.startswith(".")
