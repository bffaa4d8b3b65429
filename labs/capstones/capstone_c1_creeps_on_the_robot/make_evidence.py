"""Makes `handout/nightly.log`: trains and evaluates the last commit of some days, as the nightly job does.

    python labs/capstones/capstone_c1_creeps_on_the_robot/make_evidence.py

It takes a minute of CPU time. `make_history.py` comes first: it makes the commits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from make_history import BUNDLE, FOLDER, git

LOG = FOLDER / "handout" / "nightly.log"
ROOT = FOLDER.parents[2]
NIGHTS = ("2026-03-05", "2026-03-11", "2026-03-13", "2026-03-18", "2026-03-20", "2026-03-26")


def last_of_each_day(repository: Path) -> list[tuple[str, str]]:
    """The day and the hash of the last commit of each day, the oldest first."""
    days: dict[str, str] = {}
    for entry in git(repository, "log", "--reverse", "--format=%H %ad", "--date=format:%Y-%m-%d").splitlines():
        commit, day = entry.split()
        days[day] = commit
    return list(days.items())


def logged(repository: Path) -> str:
    """What `python train.py` prints at the commit that is checked out."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    run = [sys.executable, "train.py"]
    return subprocess.run(run, cwd=repository, env=environment, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Write the log."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "repo"
        git(Path(folder), "clone", "--quiet", BUNDLE, repository)
        for day, commit in last_of_each_day(repository):
            if day not in NIGHTS:
                continue
            git(repository, "checkout", "--quiet", commit)
            lines.append(f"{day} 19:00  {commit[:7]}  {logged(repository).strip()}")
            print(lines[-1], flush=True)
    LOG.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
