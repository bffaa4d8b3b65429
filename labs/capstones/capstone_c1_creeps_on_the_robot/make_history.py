"""Builds the repository of this capstone from the 40 patches in `history/`, and `handout/history.bundle` from it.

    python labs/capstones/capstone_c1_creeps_on_the_robot/make_history.py

Authors, dates and messages are those of the patches, so the hashes are the same every time. A patch is what
`git format-patch` writes: to change a commit, edit its patch, and read the new hashes with `git log` in a clone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
PATCHES = FOLDER / "history"
BUNDLE = FOLDER / "handout" / "history.bundle"
COMMITTER = {"GIT_COMMITTER_NAME": "Tabletop merge queue", "GIT_COMMITTER_EMAIL": "merge@tabletop.example"}
OWN_SETTINGS = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C", "TZ": "UTC"}


def git(repository: Path, *arguments: str | Path) -> str:
    """Run git without the settings of the user; returns what it prints. Raises CalledProcessError."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = inherited | OWN_SETTINGS | COMMITTER
    command = ["git", "-C", str(repository), *map(str, arguments)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def build(repository: Path) -> str:
    """Make the repository in an empty folder; returns the hash of its head."""
    git(repository, "init", "--quiet", "--initial-branch=main")
    git(repository, "am", "--quiet", "--committer-date-is-author-date", *sorted(PATCHES.glob("*.patch")))
    return git(repository, "rev-parse", "HEAD")


def main() -> None:
    """Write the bundle."""
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder)
        head = build(repository)
        bundle = repository / ".git" / "history.bundle"
        git(repository, "bundle", "create", bundle, "HEAD", "main")
        shutil.copyfile(bundle, BUNDLE)
    print(f"{BUNDLE.name}: {len(list(PATCHES.glob('*.patch')))} commits, head {head}")


if __name__ == "__main__":
    main()
