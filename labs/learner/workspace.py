"""The workspace: the folder with a learner's copies of the labs' files, and `.lab/` with the lab's own files.

    workspace/
      .lab/                          progress.json and the one before it, the lock, started/ (starters as copied),
                                     passed/ (what passed last), attempts/ (kept by reset),
                                     backups/ (kept by upgrade)
      lab03_gripper_never_closes/        the learner's copy; the shipped starter is never edited

Nothing here overwrites an attempt. A copy is staged inside `.lab/` and renamed into place, so a process that is killed
leaves no incomplete lab. A lock lets two processes work in one workspace.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from labs.grading.answers import ANSWERS, blank
from labs.grading.catalog import Lab
from labs.learner.atomic_file import flush_folder, write_atomically
from labs.learner.former_names import names_of
from labs.learner.handout import HANDOUT
from labs.learner.pack import current_pack, is_foreign

STATE = ".lab"
DEFAULT = "workspace"
PACK_OF = "pack"
"""The file in `.lab/` with the name of the pack, in the workspace of a pack."""
LOCK_SECONDS = 20.0


class WorkspaceError(Exception):
    """The command cannot be done in this workspace; the message says what to do."""


@dataclass(frozen=True)
class Workspace:
    """A folder with a learner's attempts. It may not exist yet; the first `start` creates it."""

    root: Path
    pack: str = ""
    """The pack whose labs it has; empty for the labs of vla-debug-lab."""

    @property
    def state(self) -> Path:
        """The folder with the lab's own files."""
        return self.root / STATE

    @property
    def exists(self) -> bool:
        """Whether the folder is a workspace already."""
        return self.state.is_dir()

    def make(self) -> None:
        """Create the folders of the workspace if they are not there. Raises OSError, WorkspaceError."""
        if self.pack:
            make_workspace(self.root.parent)
        make_workspace(self.root)
        if self.pack and not (self.state / PACK_OF).is_file():
            write_atomically(self.state / PACK_OF, f"{self.pack}\n".encode())

    def attempt(self, lab: Lab) -> Path:
        """The folder of the learner's copy of one lab, started or not."""
        return _folder_in(self.root, lab)

    def is_started(self, lab: Lab) -> bool:
        """Whether the learner has every editable file of the lab."""
        return all((self.attempt(lab) / name).is_file() for name in lab.editable)

    def started_attempt(self, lab: Lab) -> Path:
        """The folder of a started lab with all its files. Raises WorkspaceError."""
        absent = [name for name in lab.editable if not (self.attempt(lab) / name).is_file()]
        if absent and self.attempt(lab).is_dir():
            verb = "is" if len(absent) == 1 else "are"
            missing = not any(os.path.lexists(self.attempt(lab) / name) for name in absent)
            what = f"missing from {self.attempt(lab)}" if missing else f"in {self.attempt(lab)}, but {verb} not a file"
            raise WorkspaceError(
                f"{' and '.join(absent)} {verb} {what}. "
                f"`lab reset {lab.id}` restores a fresh copy and keeps what is there now."
            )
        if not self.is_started(lab):
            raise WorkspaceError(
                f"Lab {lab.id} is not started in {self.root}. `lab start {lab.id}` copies its files there."
            )
        return self.attempt(lab)

    def starter(self, lab: Lab) -> Path:
        """The folder with the files as this learner received them; the shipped ones if those were not kept."""
        kept = self.kept_starter(lab)
        return kept if all((kept / name).is_file() for name in lab.editable) else lab.folder

    def kept_starter(self, lab: Lab) -> Path:
        """The folder with the files as they were copied, existing or not."""
        return _folder_in(self.state / "started", lab)

    def passed(self, lab: Lab) -> Path:
        """The folder with the files of the last pass, existing or not."""
        return _folder_in(self.state / "passed", lab)

    def keep_passed(self, lab: Lab) -> None:
        """Keep the attempt as it is as the submission that passed last. Raises OSError, WorkspaceError."""
        with self.locked():
            attempt, kept = self.attempt(lab), self.passed(lab)
            names = [name for name in originals(lab) if (attempt / name).is_file()]
            self._replace(kept, self._staged({name: (attempt / name).read_bytes() for name in names}))

    def start(self, lab: Lab) -> bool:
        """Copy the lab's editable files, and `answers.toml` if it has questions; True if anything was copied.

        Existing files are not changed; a deleted one is restored. Raises OSError, WorkspaceError.
        """
        self.make()
        with self.locked():
            self._sweep()
            files = originals(lab)
            missing = [name for name in files if not os.path.lexists(self.attempt(lab) / name)]
            if not self.attempt(lab).exists():
                self._keep_starter(lab)
                self._stage(lab).rename(self.attempt(lab))
                flush_folder(self.root)
            else:
                for name in missing:
                    (self.attempt(lab) / name).parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(self.attempt(lab) / name, files[name])
        return bool(missing)

    def reset(self, lab: Lab, now: datetime | None = None) -> Path:
        """Replace the attempt with a fresh copy; return where the old one is kept. Raises OSError, WorkspaceError."""
        # A lab with a deleted file can be reset too.
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
        """Hold the workspace's lock. Raises WorkspaceError if another process holds it for too long."""
        import filelock  # imported only by commands that write

        try:
            with filelock.FileLock(self.state / "lock", timeout=LOCK_SECONDS):
                yield
        except filelock.Timeout:
            raise WorkspaceError(
                f"Another `lab` has been using {self.root} for {LOCK_SECONDS:.0f} s. "
                "Wait for it or stop it, then try again."
            ) from None

    def _stage(self, lab: Lab) -> Path:
        return self._staged(originals(lab))

    def _staged(self, files: Mapping[str, bytes]) -> Path:
        staged = Path(tempfile.mkdtemp(dir=self.state, prefix="staging-"))
        try:
            staged.chmod(0o755)  # mkdtemp's 0700 would hide the attempt from an instructor's account
            for name, content in files.items():
                (staged / name).parent.mkdir(parents=True, exist_ok=True)
                write_atomically(staged / name, content)
                (staged / name).chmod(0o644)
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise
        return staged

    def _keep_starter(self, lab: Lab) -> None:
        """Keep the files as they are copied now, so that a later upgrade of the labs does not change `lab diff`."""
        self._replace(self.kept_starter(lab), self._stage(lab))

    @staticmethod
    def _replace(folder: Path, fresh: Path) -> None:
        folder.parent.mkdir(exist_ok=True)
        old = fresh.with_name(f"{fresh.name}-old")  # what a killed process leaves here, `_sweep` removes
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
        shutil.rmtree(old, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove what a killed process left. Nothing staged is in use, because the caller holds the lock."""
        for leftover in self.state.glob("staging-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def _free_place(self, lab: Lab, now: datetime) -> Path:
        stamp = now.strftime("%Y-%m-%dT%H-%M-%S")
        place, number = _folder_in(self.state / "attempts", lab) / stamp, 1
        while place.exists():
            number += 1
            place = place.with_name(f"{stamp}-{number}")
        return place


def originals(lab: Lab) -> dict[str, bytes]:
    """What a learner receives: the editable files, what is in the lab's `handout/`, and a blank `answers.toml`.

    The last only for a lab with questions. What is handed out is the learner's: it is not graded.
    """
    files = {name: (lab.folder / name).read_bytes() for name in lab.editable}
    handout = lab.folder / HANDOUT
    files |= {
        path.relative_to(handout).as_posix(): path.read_bytes() for path in sorted(handout.rglob("*")) if path.is_file()
    }
    return files | {ANSWERS: blank(lab).encode()} if lab.questions else files


def _folder_in(parent: Path, lab: Lab) -> Path:
    """The lab's folder in `parent`, existing or not; one that an older release named otherwise keeps its name."""
    known = [parent / name for name in names_of(lab)]
    return next((folder for folder in known if folder.is_dir()), known[0])


def resolve(explicit: Path | None = None, start: Path | None = None) -> Workspace:
    """The workspace of a command: `explicit`, else the nearest parent folder with `.lab/`, else `./workspace`.

    The labs of a pack are in a workspace of their own, a folder of it with the pack's name. Raises WorkspaceError if
    `explicit` is not a workspace, if `./workspace` holds other files, or if the workspace is another pack's.
    """
    found = _resolved(explicit, start)
    pack = current_pack() if is_foreign() else None
    name, of = pack.name if pack is not None else "", _pack_of(found)
    if of == name:
        return Workspace(found.root, name)
    if of:
        raise WorkspaceError(
            f"{found.root} is the workspace of the pack {of}. Give the pack with --pack, or go elsewhere."
        )
    own = Workspace(found.root / name, name)
    if own.root.exists() and _pack_of(own) != name:
        raise WorkspaceError(f"{own.root} exists and is not the workspace of the pack {name}. Move it.")
    return own


def _pack_of(workspace: Workspace) -> str:
    path = workspace.state / PACK_OF
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def _resolved(explicit: Path | None, start: Path | None) -> Workspace:
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
            f"{default.root} is not a lab workspace, and it is not empty. `lab init {DEFAULT}` makes it one; "
            "`lab init DIR` creates one elsewhere."
        )
    return default


def make_workspace(folder: Path) -> bool:
    """Make `folder` a workspace; False if it already was. Raises OSError, WorkspaceError."""
    workspace = Workspace(folder.resolve())
    if workspace.exists:
        return False
    if folder.exists() and not folder.is_dir():
        raise WorkspaceError(f"{folder} is a file, so it cannot be a workspace. Choose a folder.")
    workspace.state.mkdir(parents=True, exist_ok=True)
    return True
