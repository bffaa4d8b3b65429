"""A killed writer loses nothing, and the next write removes what it left behind."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from child_processes import started
from labs.learner import atomic_file
from labs.learner.atomic_file import write_atomically

WRITER = """
import sys, time
from pathlib import Path
from labs.learner import atomic_file

def never(descriptor):
    print("written", flush=True)
    time.sleep(1000)

atomic_file.os.fsync = never
atomic_file.write_atomically(Path(sys.argv[1]), b"half a file")
"""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "progress.json"
    path.write_bytes(b"before")
    (tmp_path / ".progress.json.swp").write_bytes(b"an editor's file")
    (tmp_path / "mine.tmp").write_bytes(b"the learner's file")
    return path


def temporaries(target: Path) -> list[Path]:
    return list(target.parent.glob(".progress.json.*.tmp"))


@contextlib.contextmanager
def writing(target: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has written its temporary file and never gets further."""
    with started([sys.executable, "-c", WRITER, target], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        yield process


def test_the_file_of_a_killed_writer_is_removed_and_that_of_a_living_one_is_not(target: Path) -> None:
    with writing(target) as killed, writing(target):
        killed.kill()
        killed.wait()
        assert (target.read_bytes(), len(temporaries(target))) == (b"before", 2)
        write_atomically(target, b"after")
        assert target.read_bytes() == b"after"
        assert len(temporaries(target)) == 1
    write_atomically(target, b"again")
    assert sorted(path.name for path in target.parent.iterdir()) == [".progress.json.swp", "mine.tmp", "progress.json"]


def test_a_file_swept_before_it_is_locked_is_made_again(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock: Callable[[int, int], None] = atomic_file.fcntl.flock
    swept: list[Path] = []

    def late(descriptor: int, how: int) -> None:
        if not swept:
            swept.extend(temporaries(target))
            swept[0].unlink()
        flock(descriptor, how)

    monkeypatch.setattr(atomic_file.fcntl, "flock", late)
    write_atomically(target, b"after")
    assert len(swept) == 1
    assert target.read_bytes() == b"after"
    assert temporaries(target) == []


def test_a_file_system_without_locks_is_written_all_the_same(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(descriptor: int, how: int) -> None:
        raise OSError

    monkeypatch.setattr(atomic_file.fcntl, "flock", refused)
    write_atomically(target, b"after")
    assert target.read_bytes() == b"after"
    assert temporaries(target) == []
