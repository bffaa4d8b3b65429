"""Progress: what a learner did with each lab, in `.lab/progress.json`.

The changes are pure functions from one progress to the next; `record` alone writes, under the workspace's lock.
A file that cannot be read is renamed, never deleted and never overwritten; the one before the last change replaces it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from labs.learner.atomic_file import write_atomically
from labs.learner.workspace import Workspace

SCHEMA = 1
Status = Literal["new", "started", "passed", "given_up"]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class ProgressError(Exception):
    """Progress cannot be read, and the file was left as it is; the message says why and what to do."""


class LabProgress(msgspec.Struct, frozen=True):
    """What happened in one lab. Times are UTC."""

    started_at: datetime
    grades: _Count = 0
    hints: Annotated[int, msgspec.Meta(ge=0, le=3)] = 0
    passed_at: datetime | None = None
    grades_to_pass: _Count | None = None
    hints_to_pass: _Count | None = None
    gave_up_at: datetime | None = None
    wrong_fixes: tuple[str, ...] = ()
    diagnosed: bool = False
    """Whether `lab diagnose` showed a finding, which counts like a hint."""
    graded_by: str = ""
    """The hash of the checks that the lab was started with, or that the last pass was graded by; see `upgrade`."""
    outdated_at: datetime | None = None
    """When `lab upgrade` found that the submission that passed does not pass the current checks; None after a pass."""

    @property
    def status(self) -> Status:
        """`given_up` is permanent: a pass after reading the solution does not count."""
        if self.gave_up_at is not None and (self.passed_at is None or self.gave_up_at < self.passed_at):
            return "given_up"
        if self.outdated_at is not None:
            return "started"
        return "passed" if self.passed_at is not None else "started"

    @property
    def seconds_to_fix(self) -> float | None:
        """Time from `lab start` to the first passing grade; None without a pass."""
        if self.status != "passed" or self.passed_at is None:
            return None
        return (self.passed_at - self.started_at).total_seconds()


class Progress(msgspec.Struct, frozen=True):
    """Everything a workspace remembers; the keys of `labs` are lab ids."""

    schema: int = SCHEMA
    labs: dict[str, LabProgress] = {}
    known: tuple[str, ...] = ()
    """The ids of the labs that there were at the last `lab upgrade`; none before the first."""

    def status(self, lab_id: str) -> Status:
        """The status of one lab."""
        return self.labs[lab_id].status if lab_id in self.labs else "new"


@dataclass(frozen=True)
class Loaded:
    """The progress, and a sentence for the learner if the file could not be read."""

    progress: Progress
    notice: str | None = None


Change = Callable[[Progress], Progress]


def started(lab_id: str, now: datetime, digest: str = "") -> Change:
    """A lab was started, with checks of this hash; starting again changes nothing."""
    fresh = LabProgress(started_at=now, graded_by=digest)
    return lambda progress: _with(progress, lab_id, progress.labs.get(lab_id) or fresh)


def graded(lab_id: str, passed: bool, now: datetime, wrong_fix: str | None = None, digest: str = "") -> Change:
    """A grade by checks of this hash ended with a verdict (an error of the grader's own is not recorded)."""

    def change(progress: Progress) -> Progress:
        was = progress.labs.get(lab_id) or LabProgress(started_at=now)
        became = msgspec.structs.replace(was, grades=was.grades + 1)
        if wrong_fix is not None and wrong_fix not in was.wrong_fixes:
            became = msgspec.structs.replace(became, wrong_fixes=(*was.wrong_fixes, wrong_fix))
        if passed and was.passed_at is None:
            became = msgspec.structs.replace(
                became, passed_at=now, grades_to_pass=became.grades, hints_to_pass=was.hints + was.diagnosed
            )
        if passed:
            became = msgspec.structs.replace(became, outdated_at=None, graded_by=digest)
        return _with(progress, lab_id, became)

    return change


def hinted(lab_id: str, level: int, now: datetime) -> Change:
    """A hint was read, level 1 to 3."""

    def change(progress: Progress) -> Progress:
        was = progress.labs.get(lab_id) or LabProgress(started_at=now)
        return _with(progress, lab_id, msgspec.structs.replace(was, hints=max(was.hints, level)))

    return change


def diagnosed(lab_id: str, now: datetime) -> Change:
    """`lab diagnose` showed a finding."""

    def change(progress: Progress) -> Progress:
        was = progress.labs.get(lab_id) or LabProgress(started_at=now)
        return _with(progress, lab_id, msgspec.structs.replace(was, diagnosed=True))

    return change


def checked_by(lab_id: str, digest: str) -> Change:
    """The lab's checks have this hash now; a lab that was not started is left out."""

    def change(progress: Progress) -> Progress:
        was = progress.labs.get(lab_id)
        return progress if was is None else _with(progress, lab_id, msgspec.structs.replace(was, graded_by=digest))

    return change


def outdated(lab_id: str, digest: str, now: datetime) -> Change:
    """The submission that passed does not pass the checks with this hash: the lab is to be passed again."""

    def change(progress: Progress) -> Progress:
        was = progress.labs[lab_id]
        return _with(progress, lab_id, msgspec.structs.replace(was, graded_by=digest, outdated_at=now))

    return change


def knows(lab_ids: Iterable[str]) -> Change:
    """`lab upgrade` has seen these labs."""
    ids = tuple(sorted(lab_ids))
    return lambda progress: msgspec.structs.replace(progress, known=ids)


def gave_up(lab_id: str, now: datetime) -> Change:
    """The solution was read. After a pass this does not count as giving up."""

    def change(progress: Progress) -> Progress:
        was = progress.labs.get(lab_id) or LabProgress(started_at=now)
        if was.passed_at is not None or was.gave_up_at is not None:
            return _with(progress, lab_id, was)
        return _with(progress, lab_id, msgspec.structs.replace(was, gave_up_at=now))

    return change


def merged(with_other: Progress) -> Change:
    """Progress was imported. For each lab the one with the better status counts; of two equal ones, the earlier."""
    rank = {"new": 0, "started": 1, "given_up": 2, "passed": 3}

    def further(one: LabProgress, other: LabProgress) -> LabProgress:
        first, second = sorted((one, other), key=lambda lab: lab.started_at)
        return second if rank[second.status] > rank[first.status] else first

    def change(progress: Progress) -> Progress:
        together = dict(progress.labs)
        for lab_id, theirs in with_other.labs.items():
            together[lab_id] = further(together[lab_id], theirs) if lab_id in together else theirs
        return msgspec.structs.replace(progress, labs=together)

    return change


def read(workspace: Workspace) -> Loaded:
    """The workspace's progress. A file that cannot be read is renamed, with a notice. Raises ProgressError, OSError."""
    path = _path(workspace)
    try:
        return Loaded(decode(path.read_bytes(), str(path)))
    except FileNotFoundError:
        return Loaded(Progress())
    except msgspec.DecodeError:
        with workspace.locked():
            return _renamed(path)


def check(workspace: Workspace) -> None:
    """Whether the file can be read; it stays where it is. Raises ProgressError, OSError."""
    path = _path(workspace)
    with contextlib.suppress(FileNotFoundError):
        try:
            decode(path.read_bytes(), str(path))
        except msgspec.DecodeError:
            raise ProgressError(
                f"{path} is damaged. The next command keeps it under another name and goes on with your progress "
                "before the last change, or from zero if there is none."
            ) from None


def record(workspace: Workspace, change: Change) -> Loaded:
    """Apply one change to the file atomically, under the workspace's lock. Raises ProgressError, OSError."""
    workspace.make()
    path = _path(workspace)
    with workspace.locked():
        try:
            before = Loaded(decode(path.read_bytes(), str(path)))
        except FileNotFoundError:
            before = Loaded(Progress())
        except msgspec.DecodeError:
            before = _renamed(path)
        after = change(before.progress)
        with _keeping_previous(path):
            write_atomically(path, encode(after))
    return Loaded(after, before.notice)


def encode(progress: Progress) -> bytes:
    """The bytes of `progress.json` and of an export."""
    return msgspec.json.format(msgspec.json.encode(progress), indent=2) + b"\n"


def decode(content: bytes, where: str) -> Progress:
    """Read and validate. Raises msgspec.DecodeError if malformed, ProgressError if a newer version wrote it."""
    header = msgspec.json.decode(content, type=_Header)
    if header.schema > SCHEMA:
        raise ProgressError(
            f"{where} was written by a newer version of the lab (schema {header.schema}, this one reads {SCHEMA}). "
            "Nothing was changed. Upgrade vla-debug-lab."
        )
    return msgspec.json.decode(content, type=Progress)


class _Header(msgspec.Struct):
    schema: int


def _path(workspace: Workspace) -> Path:
    return workspace.state / "progress.json"


def _with(progress: Progress, lab_id: str, lab: LabProgress) -> Progress:
    labs: Mapping[str, LabProgress] = {**progress.labs, lab_id: lab}
    return msgspec.structs.replace(progress, labs=dict(sorted(labs.items())))


def _renamed(path: Path) -> Loaded:
    """Rename an unreadable file, and restore the copy from before the last change, if there is one.

    The caller holds the lock, so the second of two processes finds what the first has done.
    """
    try:
        return Loaded(decode(path.read_bytes(), str(path)))
    except FileNotFoundError:
        return Loaded(Progress())
    except msgspec.DecodeError:
        pass
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S-%f")
    kept = path.with_name(f"progress.unreadable-{stamp}.json")
    path.rename(kept)
    said = f"progress.json could not be read. It is kept as {kept}, and your progress "
    try:
        content = _previous(path).read_bytes()
        restored = decode(content, str(_previous(path)))
    except (OSError, ProgressError, msgspec.DecodeError):
        return Loaded(Progress(), f"{said}starts from zero.")
    write_atomically(path, content)
    return Loaded(restored, f"{said}is what it was before the last change.")


@contextlib.contextmanager
def _keeping_previous(path: Path) -> Iterator[None]:
    """Keep the file that is replaced inside the block under a second name."""
    fresh = path.with_name("progress.previous.new")
    fresh.unlink(missing_ok=True)  # of a process that was killed
    with contextlib.suppress(OSError):  # the first change, or a file system without hard links
        os.link(path, fresh)
    try:
        yield
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):
        fresh.replace(_previous(path))


def _previous(path: Path) -> Path:
    return path.with_name("progress.previous.json")
