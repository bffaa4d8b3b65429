"""`lab dev figures`: makes a lesson's figures from real runs, by the lab's own `figures.py`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from labs.authoring.lab_module import load_module
from labs.grading.catalog import Lab
from labs.learner.lesson import lesson_file

SUFFIXES = (".svg", ".png", ".gif")


class FiguresError(Exception):
    """A figures.py did not write usable figures; the message says what is wrong."""


def has_figures(lab: Lab) -> bool:
    """Whether the lab has a figures.py."""
    return (lab.folder / "figures.py").is_file()


def make_figures(lab: Lab) -> list[Path]:
    """Run `figures(out)` of the lab's figures.py and copy what it wrote next to the lesson.

    The old figures are replaced once all new ones exist. Raises FiguresError, and whatever the lab's code raises.
    """
    function = getattr(load_module(lab.folder / "figures.py"), "figures", None)
    if not callable(function):
        raise FiguresError(f"{lab.name}/figures.py has no function figures(out: Path).")
    target = lesson_file(lab).parent / "figures"
    with tempfile.TemporaryDirectory(prefix="lab-figures-") as name:
        out = Path(name)
        function(out)
        made = sorted(path for path in out.iterdir() if path.is_file())
        _refuse_other_files(lab, made)
        target.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copyfile(path, target / path.name)) for path in made]


def _refuse_other_files(lab: Lab, made: list[Path]) -> None:
    if not made:
        raise FiguresError(f"{lab.name}/figures.py wrote nothing into the folder that it received.")
    for path in made:
        if path.suffix not in SUFFIXES:
            raise FiguresError(f"{lab.name}/figures.py wrote {path.name}; a figure is {', '.join(SUFFIXES)}.")
        if not path.name.startswith(f"{lab.id}_"):
            # The chapter's labs share the folder, so a bare name could overwrite another lab's figure.
            raise FiguresError(f"{lab.name}/figures.py wrote {path.name}; a figure's name begins with {lab.id}_.")
