"""Ordinary accidents: each ends in one sentence that says what to do, and nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from child_processes import run
from labs.cli.failures import explain
from labs.grading.catalog import Lab
from labs.learner import progress
from labs.learner.workspace import Workspace, make_workspace

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

Run = Callable[..., tuple[int, str, str]]
MOUNTING = ["unshare", "--user", "--map-root-user", "--mount"]
ROOT = Path(__file__).parents[2]


def one_sentence(said: tuple[int, str, str], code: int = 2) -> str:
    """The message, after checking what holds for every end in an error."""
    assert said[0] == code, said
    assert "Traceback" not in said[1] + said[2]
    assert said[2].startswith("lab: ")
    assert said[2].count("\n") == 1
    return said[2]


@pytest.fixture
def attempt(in_workspace: Workspace, lab: Lab, lab_command: Run) -> Path:
    """The learner's file of the fixture lab, started, and edited to the solution."""
    lab_command("start", "03")
    path = in_workspace.attempt(lab) / "policy.py"
    shutil.copy(lab.solution / "policy.py", path)
    return path


def make_link(path: Path) -> None:
    target = path.with_name("elsewhere.py")
    target.write_text("mine = 1\n")
    path.symlink_to(target)


NOT_GRADABLE = {
    "not-utf-8": (lambda path: path.write_bytes(b"a = '\xff'\n"), 1, "is not UTF-8 text (line 1)"),
    "a-nul": (lambda path: path.write_bytes(b"a = 1\0\n"), 1, "null bytes"),
    "50-mb": (lambda path: path.write_bytes(b"a" * 50_000_000), 1, "is larger than 512 KiB"),
    "a-link": (make_link, 1, "is a link"),
    "a-link-to-nothing": (lambda path: path.symlink_to("nowhere.py"), 2, "is in "),
    "a-folder": (lambda path: path.mkdir(), 2, "is not a file"),
    "a-fifo": (lambda path: os.mkfifo(path), 2, "is not a file"),
}


@pytest.mark.parametrize(("make", "code", "said"), NOT_GRADABLE.values(), ids=NOT_GRADABLE)
def test_a_file_that_cannot_be_graded_is_explained_and_left_alone(
    make: Callable[[Path], object],
    code: int,
    said: str,
    lab_command: Run,
    attempt: Path,
    in_workspace: Workspace,
) -> None:
    attempt.unlink()
    make(attempt)
    before = attempt.lstat()
    graded = lab_command("grade", "03", "--json")
    document = json.loads(graded[1])
    assert graded[0] == code
    assert said in (document["labs"][0]["reason"] if code == 1 else document["error"])
    assert "Traceback" not in graded[2]
    for verb in ("diff", "run", "start", "hint", "list"):
        ended = lab_command(verb, *(["03"] if verb != "list" else []))
        assert ended[0] in (0, 1, 2), verb
        assert len(ended[1] + ended[2]) < 20_000, verb
        assert "Traceback" not in ended[1] + ended[2], verb
    assert (attempt.lstat().st_ino, attempt.lstat().st_size) == (before.st_ino, before.st_size)
    assert lab_command("reset", "03")[0] == 0
    [kept] = (in_workspace.state / "attempts").glob("*/*")
    assert (kept / "policy.py").lstat().st_ino == before.st_ino


def test_a_moved_workspace_is_the_same_workspace(
    lab_command: Run, attempt: Path, in_workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path / "작업 공간 (2)"
    in_workspace.root.rename(moved)
    monkeypatch.chdir(moved)
    assert "started" in {one["status"] for one in json.loads(lab_command("list", "--json")[1])["labs"]}
    code, out, _ = lab_command("diff", "03")
    assert (code, "+" in out) == (0, True)


def test_the_nearest_of_two_nested_workspaces_is_meant(
    lab_command: Run, attempt: Path, in_workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = in_workspace.root / "below" / "inner"
    make_workspace(inner)
    monkeypatch.chdir(inner)
    assert json.loads(lab_command("list", "--json")[1])["labs"][0]["status"] == "new"
    lab_command("start", "03")
    assert (inner / attempt.parent.name / "policy.py").exists()
    assert progress.read(in_workspace).progress.status("03") == "started"


def test_a_current_folder_that_was_removed_is_one_sentence(in_workspace: Workspace, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = f"import os; os.rmdir({str(gone)!r}); from labs.cli import main; raise SystemExit(main(['list']))"
    done = run([sys.executable, "-c", code], cwd=gone)
    said = one_sentence((done.returncode, done.stdout, done.stderr))
    assert said == "lab: The current folder was removed. Change to another folder.\n"


TOO_LITTLE = {
    "torch": ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    "a library": OSError("libgomp.so.1: cannot allocate memory in static TLS block"),
    "an array": MemoryError(),
    "a process": OSError(errno.ENOMEM, "Cannot allocate memory"),
}


@pytest.mark.parametrize("error", TOO_LITTLE.values(), ids=TOO_LITTLE)
def test_too_little_memory_is_no_bug_of_lab(error: Exception) -> None:
    failure = explain(error)
    assert failure is not None
    assert failure.exit_code == 2
    assert failure.sentence.endswith("there is not enough memory. Free some, or raise the limit (`ulimit -v`).")
    assert failure.sentence.startswith("torch could not be loaded") == (".so" in str(error))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited on Linux only")
def test_a_limit_that_torch_does_not_fit_in_is_one_sentence(attempt: Path) -> None:
    command = [sys.executable, "-m", "labs.cli", "grade", "03", "--json"]
    limited = ["bash", "-c", 'ulimit -v 400000; exec "$@"', "bash", *command]
    done = run(limited, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert "torch could not be loaded: there is not enough memory." in one_sentence(
        (done.returncode, done.stdout, done.stderr)
    )


NEWER = '{"schema": 99, "labs": {}, "something": "new"}'


def test_a_lab_whose_start_cannot_be_recorded_is_not_copied(
    lab_command: Run, in_workspace: Workspace, lab: Lab
) -> None:
    (in_workspace.state / "progress.json").write_text(NEWER)
    said = one_sentence(lab_command("start", "03"))
    assert "Nothing was changed. Upgrade vla-debug-lab." in said
    assert not in_workspace.attempt(lab).exists()
    assert (in_workspace.state / "progress.json").read_text() == NEWER


@pytest.mark.slow
def test_a_grade_that_cannot_be_recorded_is_shown_all_the_same(
    lab_command: Run, in_workspace: Workspace, attempt: Path
) -> None:
    (in_workspace.state / "progress.json").write_text(NEWER)
    code, out, err = lab_command("grade", "03", "--json")
    assert (code, json.loads(out)["labs"][0]["verdict"]) == (0, "passed")
    said = one_sentence((2, out, err))
    assert "This grade is not recorded in your progress." in said
    assert "newer version of the lab" in said
    assert (in_workspace.state / "progress.json").read_text() == NEWER


HARSH = {"LANG": "C", "LC_ALL": "C", "TERM": "dumb", "COLUMNS": "40", "NO_COLOR": "1", "PYTHONUTF8": "0"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["list", "start 03", "hint 03", "diff 03", "run 03", "grade 03", "progress", "doctor"]
)
def test_every_command_works_without_home_terminal_colour_and_unicode(
    command: str,
    lab_command: Run,
    attempt: Path,
    in_workspace: Workspace,
    tmp_path: Path,
    lab_process: tuple[list[str], dict[str, Any]],
) -> None:
    moved = tmp_path / "작업 공간"
    in_workspace.root.rename(moved)
    kept = ("PATH", "PYTHONPATH", "VLA_LABS_ROOT", "OMP_NUM_THREADS", "TMPDIR")
    environment = {name: os.environ[name] for name in kept if name in os.environ} | HARSH
    lab, options = lab_process
    options |= {"cwd": moved, "env": environment, "stdin": subprocess.DEVNULL, "encoding": "utf-8"}
    done = run([*lab, *command.split()], **options)
    assert done.returncode == 0, done
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert not any(line.endswith(" ") for line in done.stderr.splitlines())
    prose = [line for line in done.stdout.splitlines() if not set(line.split()) & {"next", "edit", "lesson"}]
    paths = ("/", "lab ", "debugkit.", "pip")
    wide = [line for line in prose if len(line.rstrip()) > 40 and not any(word in line for word in paths)]
    assert wide == [] or command.startswith("diff")  # code is never wrapped


SMALL_DISK = """
disk=$1 solution=$2 accident=$3 lab=("${@:4}")
mount -t tmpfs -o size=200k tmpfs "$disk" && cd "$disk" || exit 77
"${lab[@]}" init mine >/dev/null && cd mine && "${lab[@]}" start 03 >/dev/null || exit 78
cp "$solution" lab03_swapped_order/policy.py
cp .lab/progress.json "$disk.before"
if [ "$accident" = full ]; then
    dd if=/dev/zero of=../fill bs=1k 2>/dev/null
else
    mount -o remount,ro "$disk"
fi
for command in "hint 03" "start 03" "reset 03" "solution 03 --give-up" "progress --export $disk/out.json"; do
    "${lab[@]}" $command 2>&1
    echo "exit $?"
done
TMPDIR="$disk.tmp" "${lab[@]}" grade 03 --json
echo "exit $?"
find . -type f -not -name lock | sort
cmp .lab/progress.json "$disk.before" && cmp "$solution" lab03_swapped_order/policy.py && echo unchanged
"""
SAID = {"full": "No space left on device|the disk is full", "read-only": "Read-only file system|read-only"}


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("accident", SAID)
def test_a_full_and_a_read_only_disk_lose_nothing_and_are_one_sentence(
    accident: str, lab: Lab, lab_process: tuple[list[str], dict[str, Any]], tmp_path: Path
) -> None:
    if shutil.which("unshare") is None or run([*MOUNTING, "true"]).returncode != 0:
        pytest.skip("this system permits no mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    disk.with_name("disk.tmp").mkdir()
    command, options = lab_process
    arguments = [disk, lab.solution / "policy.py", accident, *command]
    options |= {"env": os.environ | {"PYTHONPATH": str(ROOT)}}
    done = run([*MOUNTING, "bash", "-c", SMALL_DISK, "bash", *arguments], **options)
    assert done.returncode == 0, done
    said = done.stdout.splitlines()
    for _ in range(5):
        sentence, code, *said = said
        assert sentence.startswith("lab: ")
        assert str(disk) in sentence
        assert any(words in sentence for words in SAID[accident].split("|"))
        assert code == "exit 2"
    document, code, *said = said
    assert json.loads(document)["labs"][0]["verdict"] == "passed"
    assert code == "exit 0"
    assert "This grade is not recorded in your progress." in done.stderr
    files = ["./.lab/progress.json", "./.lab/started/lab03_swapped_order/policy.py", "./lab03_swapped_order/policy.py"]
    assert said == [*files, "unchanged"]
