"""Makes `handout/runs.log`: what `python train.py` prints before the change and after it.

    python labs/capstones/capstone_c2_both_losses_lower/make_evidence.py

It takes half a minute of CPU time and needs the command `patch`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HANDOUT = Path(__file__).parent / "handout"
ROOT = HANDOUT.parents[3]


def after(folder: Path) -> Path:
    """The project with the change, below an empty folder."""
    project = folder / "after"
    shutil.copytree(HANDOUT / "before", project)
    patch = ["patch", "--silent", "-p1", "-d", str(project), "-i", str(HANDOUT / "change.diff")]
    subprocess.run(patch, check=True)
    return project


def printed(project: Path) -> str:
    """What a run prints."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    run = [sys.executable, "-B", "train.py"]
    return subprocess.run(run, cwd=project, env=environment, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Write the log."""
    with tempfile.TemporaryDirectory() as folder:
        parts = [
            f"$ cd {name} && python train.py\n{printed(project)}"
            for name, project in (("before", HANDOUT / "before"), ("after", after(Path(folder))))
        ]
    (HANDOUT / "runs.log").write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
