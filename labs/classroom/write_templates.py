"""The files that a course platform needs: made from `templates/`, for an instructor to keep and edit."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import metadata
from pathlib import Path
from typing import Literal, get_args

from labs.grading.catalog import Lab
from labs.grading.errors import UsageError

Platform = Literal["gradescope", "github", "matrix", "docker", "devcontainer"]
PLATFORMS: tuple[str, ...] = get_args(Platform)
FILES: dict[str, dict[str, str]] = {
    "gradescope": {"setup.sh": "setup.sh", "run_autograder": "run_autograder"},
    "github": {"classroom.yml": ".github/workflows/classroom.yml"},
    "matrix": {"class.yml": ".github/workflows/class.yml"},
    "docker": {"Dockerfile": "Dockerfile"},
    "devcontainer": {"devcontainer.json": ".devcontainer/devcontainer.json"},
}
"""By platform: each template, and where it is written."""
_TEMPLATES = Path(__file__).with_name("templates")


def write_templates(platform: str, labs: Sequence[Lab], out: Path) -> list[Path]:
    """Write the platform's files below `out`. Raises UsageError if the platform is unknown or a file exists."""
    if platform not in FILES:
        raise UsageError(f"There is no template for {platform}. Choose one of {', '.join(PLATFORMS)}.")
    places = {template: out / place for template, place in FILES[platform].items()}
    for place in places.values():
        if place.exists():
            raise UsageError(f"{place} exists, and nothing was written. Move it, or choose another folder with --out.")
    values = {"{labs}": " ".join(lab.id for lab in labs), **_repository()}
    for template, place in places.items():
        text = (_TEMPLATES / template).read_text(encoding="utf-8")
        for name, value in values.items():
            text = text.replace(name, value)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            place.chmod(0o755)
    return list(places.values())


def _repository() -> dict[str, str]:
    urls = metadata("vla-debug-lab").get_all("Project-URL") or []
    address = next(url.partition(", ")[2] for url in urls if url.startswith("Repository, "))
    return {"{repository}": address, "{owner_and_name}": address.partition("github.com/")[2]}
