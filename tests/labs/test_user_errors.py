"""Every mistake of the user is one sentence that says what to do, with exit code 2, and never a traceback."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from child_processes import run
from labs import cli
from labs.cli.failures import explain
from labs.cli.which_lab import shipped_lab
from labs.grading.catalog import Lab, UnknownLabError
from labs.learner import workspace as learner_workspace
from labs.learner.workspace import Workspace

Run = Callable[..., tuple[int, str, str]]


def one_sentence(said: tuple[int, str, str], code: int = 2) -> str:
    """The message, after checking what holds for every usage error."""
    assert said[0] == code
    assert said[1] == ""
    assert "Traceback" not in said[2]
    assert said[2].startswith("lab: ")
    assert said[2].count("\n") == 1
    return said[2]


@pytest.mark.parametrize(
    "verb", ["start", "run", "grade", "hint", "watch", "diagnose", "diff", "reset", "solution", "open"]
)
def test_a_lab_that_does_not_exist(lab_command: Run, verb: str) -> None:
    assert "There is no lab 99. There are: 03." in one_sentence(lab_command(verb, "99"))
    assert "There is no lab swaped_order. Did you mean `03`, swapped_order?" in one_sentence(
        lab_command(verb, "swaped_order")
    )


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("10", "Labs: 01–07, 11–18, 21–28, "),
        ("c9", "Capstones: 97, 98, 99, C1, C2, C3. `lab list`"),
        ("gripper_never_close", "Did you mean `03`, gripper_never_closes?"),
        ("creeps_on_a_robot", "Did you mean `C1`, creeps_on_the_robot?"),
    ],
)
def test_the_shipped_labs_and_capstones_are_suggested(typed: str, answer: str) -> None:
    with pytest.raises(UnknownLabError) as raised:
        shipped_lab(typed)
    assert str(raised.value).startswith(f"There is no lab {typed}. ")
    assert answer in str(raised.value)


@pytest.mark.parametrize("verb", ["run", "hint", "watch", "diagnose", "diff", "reset"])
def test_a_lab_that_is_not_started(lab_command: Run, verb: str) -> None:
    assert "`lab start 03`" in one_sentence(lab_command(verb, "03"))


@pytest.mark.parametrize("verb", ["run", "grade", "diagnose", "diff"])
def test_a_deleted_file_of_a_started_lab(lab_command: Run, in_workspace: Workspace, lab: Lab, verb: str) -> None:
    lab_command("start", "03")
    (in_workspace.attempt(lab) / "policy.py").unlink()
    before = (in_workspace.state / "progress.json").read_bytes()
    said = one_sentence(lab_command(verb, "03"))
    assert "policy.py is missing from " in said
    assert "`lab reset 03`" in said
    assert not in_workspace.is_started(lab)
    assert (in_workspace.state / "progress.json").read_bytes() == before


def test_reset_brings_back_a_deleted_file(lab_command: Run, in_workspace: Workspace, lab: Lab) -> None:
    lab_command("start", "03")
    (in_workspace.attempt(lab) / "policy.py").unlink()
    assert lab_command("reset", "03")[0] == 0
    assert in_workspace.is_started(lab)


@pytest.mark.parametrize("verb", ["start", "grade", "hint", "solution"])
def test_a_workspace_that_is_none(lab_command: Run, verb: str) -> None:
    assert "`lab init nowhere`" in one_sentence(lab_command(verb, "03", "--workspace", "nowhere"))


def test_a_command_that_does_not_exist(lab_command: Run) -> None:
    assert "`lab --help`" in one_sentence(lab_command("frobnicate"))


def test_an_option_that_does_not_exist(lab_command: Run) -> None:
    assert "--frobnicate" in one_sentence(lab_command("list", "--frobnicate"))


def test_a_number_out_of_range_ends_in_one_full_stop(lab_command: Run) -> None:
    said = one_sentence(lab_command("grade", "03", "--seed", "-1"))
    assert "--seed" in said
    assert ". `lab --help`" in said
    assert ".." not in said


def test_a_number_that_is_none(lab_command: Run) -> None:
    assert "--jobs" in one_sentence(lab_command("grade", "03", "--jobs", "many"))


def test_grade_of_nothing_and_of_everything_at_once(lab_command: Run) -> None:
    assert "Which lab?" in one_sentence(lab_command("grade"))
    assert "not both" in one_sentence(lab_command("grade", "03", "--all"))


@pytest.mark.parametrize("arguments", [("grade", "99", "--json"), ("list", "--json", "--no"), ("nonsense", "--json")])
def test_an_error_with_json_is_one_document_all_the_same(lab_command: Run, arguments: tuple[str, ...]) -> None:
    code, out, err = lab_command(*arguments)
    document = json.loads(out)
    assert code == 2
    assert document["schema"] == 1
    assert document["labs"] == []
    assert document["error"] in err


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "read-only"), (errno.EACCES, "permission denied")],
)
@pytest.mark.parametrize("verb", ["start", "reset"])
def test_a_folder_that_cannot_be_written(
    lab_command: Run, in_workspace: Workspace, monkeypatch: pytest.MonkeyPatch, number: int, said: str, verb: str
) -> None:
    if verb == "reset":
        lab_command("start", "03")
        (in_workspace.root / "lab03_swapped_order" / "policy.py").write_text("mine = 1\n")

    def refuse(path: Path, content: bytes) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(learner_workspace, "write_atomically", refuse)
    assert said in one_sentence(lab_command(verb, "03"))
    if verb == "reset":
        assert (in_workspace.root / "lab03_swapped_order" / "policy.py").read_text() == "mine = 1\n"
    else:
        assert not (in_workspace.root / "lab03_swapped_order").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_really_read_only(lab_command: Run, in_workspace: Workspace) -> None:
    in_workspace.state.chmod(0o500)
    try:
        assert "permission denied" in one_sentence(lab_command("start", "03"))
    finally:
        in_workspace.state.chmod(0o700)


def test_init_over_a_file(lab_command: Run, in_workspace: Workspace) -> None:
    (in_workspace.root / "taken").write_text("")
    assert "is a file" in one_sentence(lab_command("init", "taken"))


def test_an_old_python_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18, "final", 0))
    assert cli.main(["list", "--json"]) == 2
    captured = capsys.readouterr()
    assert "needs Python 3.11 or newer, and this is 3.9" in captured.err
    assert json.loads(captured.out)["labs"] == []


def test_native_windows_is_one_sentence_and_names_wsl(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert cli.main(["list", "--json"]) == 2
    captured = capsys.readouterr()
    assert "does not run on native Windows" in captured.err
    assert "WSL" in captured.err
    assert json.loads(captured.out)["labs"] == []


def test_the_entry_point_is_readable_by_the_pythons_it_refuses() -> None:
    import ast

    for name in ("__init__.py", "__main__.py"):
        ast.parse((Path(cli.__file__).parent / name).read_text(), feature_version=(3, 7))
    labs_init = Path(cli.__file__).parents[1] / "__init__.py"
    ast.parse(labs_init.read_text(), feature_version=(3, 7))


@pytest.mark.parametrize("missing", ["msgspec", "typer", "rich"])
def test_a_missing_extra_is_reported_with_the_command_that_installs_it(tmp_path: Path, missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from labs.cli import main; sys.exit(main(['progress']))"
    done = run([sys.executable, "-c", code], cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert (
        f"lab needs {missing}, which is not installed. Install it with `pip install 'vla-debug-lab[labs]'`"
        in done.stderr
    )
    assert done.returncode == 2


def test_a_bug_of_the_lab_leaves_its_traceback_in_a_file(
    lab_command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(lab: object) -> str:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("labs.learner.lesson.lesson_address", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert "a bug in lab" in one_sentence(lab_command("open", "03"), code=3)
    (report,) = tmp_path.glob("lab-bug-*.txt")
    assert "ZeroDivisionError: a bug" in report.read_text()


def test_interrupts_exit_with_130() -> None:
    failure = explain(KeyboardInterrupt())
    assert failure is not None
    assert failure.exit_code == 130
