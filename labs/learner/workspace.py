"""The workspace: the folder with a learner's copies of the labs' files, and `.lab/` with what the lab remembers.

    workspace/
      .lab/                          progress.json, the lock, started/ as copied, and attempts/ that a reset kept
      lab03_silent_broadcast/        the learner's copy; the shipped starter is never edited

Nothing here overwrites an attempt. A copy is staged inside `.lab/` and renamed into place, so a process that dies
half-way leaves no half lab, and a lock lets two processes work in one workspace.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from labs.grading.catalog import Lab
from labs.learner.atomic_file import flush_folder, write_atomically

STATE = ".lab"
DEFAULT = "workspace"
LOCK_SECONDS = 20.0


class WorkspaceError(Exception):
    """The workspace cannot do what was asked; the message says what to do."""


@dataclass(frozen=True)
class Workspace:
    """A folder with a learner's attempts; it may not exist yet, and is made by the first `start`."""

    root: Path

    @property
    def state(self) -> Path:
        """Where the lab keeps its own files."""
        return self.root / STATE

    @property
    def exists(self) -> bool:
        """Whether the folder has been made a workspace."""
        return self.state.is_dir()

    def attempt(self, lab: Lab) -> Path:
        """The folder of the learner's copy of one lab, started or not."""
        return self.root / lab.name

    def is_started(self, lab: Lab) -> bool:
        """Whether the learner has every editable file of the lab."""
        return all((self.attempt(lab) / name).is_file() for name in lab.editable)

    def started_attempt(self, lab: Lab) -> Path:
        """The folder of a lab that must have been started and have its files. Raises WorkspaceError."""
        missing = [name for name in lab.editable if not (self.attempt(lab) / name).is_file()]
        if missing and self.attempt(lab).is_dir():
            verb = "is" if len(missing) == 1 else "are"
            raise WorkspaceError(
                f"{' and '.join(missing)} {verb} missing from {self.attempt(lab)}. "
                f"`lab reset {lab.id}` brings a fresh copy and keeps what is there."
            )
        if not self.is_started(lab):
            raise WorkspaceError(
                f"Lab {lab.id} is not started in {self.root}. `lab start {lab.id}` copies its files there."
            )
        return self.attempt(lab)

    def starter(self, lab: Lab) -> Path:
        """The folder with the files as this learner got them; as shipped today if that was not kept."""
        kept = self.state / "started" / lab.name
        return kept if all((kept / name).is_file() for name in lab.editable) else lab.folder

    def start(self, lab: Lab) -> bool:
        """Copy the lab's editable files; True if anything was copied.

        Files that are there stay as they are; one that was deleted comes back. Raises OSError, WorkspaceError.
        """
        make_workspace(self.root)
        with self.locked():
            self._sweep()
            missing = [name for name in lab.editable if not (self.attempt(lab) / name).exists()]
            if not self.attempt(lab).exists():
                self._keep_starter(lab)
                self._stage(lab).rename(self.attempt(lab))
                flush_folder(self.root)
            else:
                for name in missing:
                    (self.attempt(lab) / name).parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(self.attempt(lab) / name, (lab.folder / name).read_bytes())
        return bool(missing)

    def reset(self, lab: Lab, now: datetime | None = None) -> Path:
        """Put a fresh copy in place; return where the old attempt is kept, whole. Raises OSError, WorkspaceError."""
        # A lab whose file was deleted can be reset too.
        attempt = self.attempt(lab) if self.attempt(lab).is_dir() else self.started_attempt(lab)
        with self.locked():
            self._sweep()
            fresh = self._stage(lab)
            kept = self._free_place(lab, now or datetime.now(UTC))
            kept.parent.mkdir(parents=True, exist_ok=True)
            self._keep_starter(lab)
            attempt.rename(kept)
            fresh.rename(attempt)
            flush_folder(self.root)
        return kept

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the workspace against every other process. Raises WorkspaceError when another keeps it too long."""
        import filelock  # only what writes pays for it

        try:
            with filelock.FileLock(self.state / "lock", timeout=LOCK_SECONDS):
                yield
        except filelock.Timeout:
            raise WorkspaceError(
                f"Another `lab` has held {self.root} for {LOCK_SECONDS:.0f} s. Wait for it or end it, then repeat this."
            ) from None

    def _stage(self, lab: Lab) -> Path:
        staged = Path(tempfile.mkdtemp(dir=self.state, prefix="staging-"))
        staged.chmod(0o755)  # mkdtemp's 0700 would hide the attempt from an instructor's account
        for name in lab.editable:
            (staged / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(staged / name, (lab.folder / name).read_bytes())
            (staged / name).chmod(0o644)
        return staged

    def _keep_starter(self, lab: Lab) -> None:
        """Remember the files as they are copied now: a course that is upgraded later does not change `lab diff`."""
        fresh, kept = self._stage(lab), self.state / "started" / lab.name
        kept.parent.mkdir(exist_ok=True)
        if kept.exists():
            kept.rename(fresh.with_name(f"{fresh.name}-old"))  # swept by the next command
        fresh.rename(kept)

    def _sweep(self) -> None:
        """Remove what a killed process left; with the lock held nothing staged is in use."""
        for leftover in self.state.glob("staging-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def _free_place(self, lab: Lab, now: datetime) -> Path:
        stamp = now.strftime("%Y-%m-%dT%H-%M-%S")
        place, number = self.state / "attempts" / lab.name / stamp, 1
        while place.exists():
            number += 1
            place = place.with_name(f"{stamp}-{number}")
        return place


def resolve(explicit: Path | None = None, start: Path | None = None) -> Workspace:
    """The workspace a command means: `explicit`, else the nearest ancestor with `.lab/`, else `./workspace`.

    Raises WorkspaceError if the folder that was named, or a `./workspace` with other things in it, is not one.
    """
    here = (start or Path.cwd()).resolve()
    if explicit is not None:
        named = Workspace((here / explicit).resolve())
        if not named.exists:
            raise WorkspaceError(f"{named.root} is not a workspace. `lab init {explicit}` makes it one.")
        return named
    for folder in (here, *here.parents):
        if (folder / STATE).is_dir():
            return Workspace(folder)
    default = Workspace(here / DEFAULT)
    if default.root.exists() and not default.exists and (not default.root.is_dir() or any(default.root.iterdir())):
        raise WorkspaceError(
            f"{default.root} is not a lab workspace, and is not empty. `lab init {DEFAULT}` makes it one; "
            "`lab init DIR` makes one elsewhere."
        )
    return default


def make_workspace(folder: Path) -> bool:
    """Make `folder` a workspace; False if it already was. Raises OSError, WorkspaceError."""
    workspace = Workspace(folder.resolve())
    if workspace.exists:
        return False
    if folder.exists() and not folder.is_dir():
        raise WorkspaceError(f"{folder} is a file, so it cannot be a workspace. Name a folder.")
    workspace.state.mkdir(parents=True, exist_ok=True)
    return True
