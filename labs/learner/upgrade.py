"""`lab upgrade`: brings a workspace up to date with the installed labs, one lab at a time; no learner's line changes.

Each step looks at the files as they are and writes one file at a time, so a run that is killed is continued by the
next one, and a run after a complete one changes nothing. What is replaced is first copied to `.lab/backups/`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from labs.grading.catalog import Lab
from labs.grading.grades import Grade
from labs.learner import progress
from labs.learner.atomic_file import write_atomically
from labs.learner.checks_hash import checks_hash
from labs.learner.progress import LabProgress
from labs.learner.workspace import Workspace, originals

NEW_STARTER = "new_starter"
"""The folder in an edited attempt that has the starter of now."""
Action = Literal["new", "added", "replaced", "beside", "checks", "passes", "again", "unsure", "not_graded"]
"""What happened: a lab is new; a file was added, replaced, or put beside an edited one; the checks changed; the
submission that passed still passes, does not, was not kept and the file of now does not, or could not be graded."""


@dataclass(frozen=True)
class Step:
    """One thing that `lab upgrade` did, or found, in a lab."""

    action: Action
    file: str = ""
    why: str = ""
    """The reason of a refusal."""


@dataclass(frozen=True)
class Upgraded:
    """What changed for a learner in one lab; no step if nothing did."""

    lab: Lab
    steps: tuple[Step, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The lab's part of the JSON document."""
        return {"id": self.lab.id, "slug": self.lab.slug, "steps": [asdict(step) for step in self.steps]}


GradeFiles = Callable[[Lab, Path], Grade]


@dataclass
class Upgrade:
    """One run in one workspace. `grade` grades the files in a folder."""

    workspace: Workspace
    grade: GradeFiles
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def backup(self) -> Path:
        """Where this run keeps what it replaces; it exists once something is replaced."""
        return self.workspace.state / "backups" / self.now.strftime("%Y-%m-%dT%H-%M-%S-%f")

    def lab(self, lab: Lab) -> Upgraded:
        """Upgrade one lab. Raises OSError, WorkspaceError, ProgressError, and what `grade` raises."""
        known = progress.read(self.workspace).progress
        done = known.labs.get(lab.id)
        if not self.workspace.attempt(lab).is_dir():
            is_new = bool(known.known) and lab.id not in known.known and done is None
            return Upgraded(lab, (Step("new"),) if is_new else ())
        # Beside a fix that passes, the new starter is of no use.
        files = self._files(lab, beside=known.status(lab.id) != "passed")
        return Upgraded(lab, (*files, *(self._verdict(lab, done, files) if done is not None else ())))

    def finish(self, labs: Sequence[Lab]) -> None:
        """Remember which labs there are, so that the next run can say which are new."""
        ids = tuple(sorted(lab.id for lab in labs))
        if progress.read(self.workspace).progress.known != ids:
            progress.record(self.workspace, progress.knows(ids))

    def _files(self, lab: Lab, beside: bool) -> list[Step]:
        with self.workspace.locked():
            found = [self._file(lab, name, content, beside) for name, content in originals(lab).items()]
        return [step for step in found if step is not None]

    def _file(self, lab: Lab, name: str, fresh: bytes, beside: bool) -> Step | None:
        kept = self.workspace.kept_starter(lab) / name
        mine = self.workspace.attempt(lab) / name
        before, here = _content(kept), _content(mine)
        if before == fresh:
            return None
        if here == fresh:
            self._write(kept, fresh)  # the last run was ended between the two
            return None
        if here is None and before is not None:
            return None  # deleted by the learner; `lab reset` restores it
        if here is None or here == before:
            if here is not None:
                self._keep(mine)
            self._write(mine, fresh)
            self._write(kept, fresh)
            return Step("added" if here is None else "replaced", name)
        place = self.workspace.attempt(lab) / NEW_STARTER / name
        if not beside or _content(place) == fresh:
            return None
        self._write(place, fresh)
        return Step("beside", name)

    def _verdict(self, lab: Lab, done: LabProgress, files: Sequence[Step]) -> list[Step]:
        digest = checks_hash(lab)
        if done.graded_by == digest:
            return []
        steps = [Step("checks")] if done.graded_by and not files else []
        if done.status != "passed":
            progress.record(self.workspace, progress.checked_by(lab.id, digest))
            return steps
        judged = self._graded_again(lab, digest)
        more = self._files(lab, beside=True) if judged.action == "again" else []
        return [*steps, judged, *more]

    def _graded_again(self, lab: Lab, digest: str) -> Step:
        kept = self.workspace.passed(lab)
        stored = kept.is_dir()
        grade = self.grade(lab, kept if stored else self.workspace.attempt(lab))
        if grade.verdict == "error":
            return Step("not_graded", why=grade.reason or "")
        if grade.passed:
            if not stored:
                self.workspace.keep_passed(lab)
            progress.record(self.workspace, progress.checked_by(lab.id, digest))
            return Step("passes")
        if not stored:
            # The learner may have changed the file after the pass, so the pass stays.
            progress.record(self.workspace, progress.checked_by(lab.id, digest))
            return Step("unsure", why=grade.reason or "")
        self._keep(self.workspace.state / "progress.json")
        progress.record(self.workspace, progress.outdated(lab.id, digest, self.now))
        return Step("again", why=grade.reason or "")

    def _keep(self, path: Path) -> None:
        copy = self.backup / path.relative_to(self.workspace.root)
        if path.is_file() and not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
