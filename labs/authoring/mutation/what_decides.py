"""What the result of a mutation run depends on: the lab's own files, the healthy policy and the grader."""

from __future__ import annotations

import hashlib

from labs.authoring.content_hash import content_of
from labs.grading.catalog import Lab


def what_decides(lab: Lab) -> str:
    """One hash of everything that can change what becomes of a mutant. Raises OSError."""
    content = content_of(lab)
    return hashlib.sha256("\0".join((content.lab, content.library, content.grader)).encode()).hexdigest()
