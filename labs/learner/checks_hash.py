"""One hash of what a lab asks of a submission: it changes when the same submission may get another verdict."""

from __future__ import annotations

import hashlib

from labs.grading.catalog import Lab

FIELDS = ("editable", "timeout_s", "memory_mb", "seeds")
"""The fields of lab.toml that decide a verdict."""


def checks_hash(lab: Lab) -> str:
    """SHA-256 of the starter, checks, probe, what they import of the modules that labs share, and the questions.

    Comments, docstrings and sentences for the learner do not count. Raises OSError.
    """
    # Both import yaml and more; only commands that record something need them.
    from labs.authoring.canonical import canonical_form
    from labs.authoring.imports import with_shared_modules

    prose = {"check": ("title", "property", "instrument"), "wrong_fix": ("says",)}
    forms = [repr([getattr(lab, field) for field in FIELDS])]
    forms += [repr((one.id, one.form, one.unit, one.choices)) for one in lab.questions]
    others = [lab.folder / name for name in lab.editable if not name.endswith(".py")]
    names = ("checks.py", "probe.py", *(name for name in lab.editable if name.endswith(".py")))
    for path in [*others, *with_shared_modules([lab.folder / name for name in names])]:
        forms.append(f"{path.name}\0{canonical_form(path.name, path.read_bytes(), prose)}")
    return hashlib.sha256("\0\0".join(forms).encode()).hexdigest()
