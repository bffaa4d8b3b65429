"""A killed writer loses nothing, and the next write removes what it left behind."""

from __future__ import annotations

import contextlib
import os
import stat
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


@pytest.mark.parametrize("mode", [0o640, 0o600])
def test_a_file_keeps_its_permissions(target: Path, mode: int) -> None:
    target.chmod(mode)
    write_atomically(target, b"after")
    assert stat.S_IMODE(target.stat().st_mode) == mode


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "results.json", b"{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "results.json").stat().st_mode) == 0o666 & ~umask
