"""`lab upgrade`: a learner's edits stay, a pass is asked again only if it no longer holds, and a kill loses nothing."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from child_processes import run
from labs.grading import Grade, catalog
from labs.grading.catalog import Lab
from labs.learner import progress
from labs.learner.checks_hash import checks_hash
from labs.learner.upgrade import Upgrade, Upgraded
from labs.learner.workspace import Workspace

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

LabCommand = Callable[..., tuple[int, str, str]]
NEW = "\nNEWER = 1\n"


def change(path: Path, more: str = NEW) -> None:
    path.write_text(path.read_text(encoding="utf-8") + more, encoding="utf-8")


def judge(verdict: str, seen: list[Path] | None = None) -> Callable[[Lab, Path], Grade]:
    def grade(lab: Lab, folder: Path) -> Grade:
        if seen is not None:
            seen.append(folder)
        return Grade(lab.id, lab.slug, verdict, None if verdict == "passed" else "Too far.", 0.0, 0)  # type: ignore[arg-type]

    return grade


def upgraded(workspace: Workspace, lab: Lab, verdict: str = "passed") -> list[str]:
    catalog.all_labs.cache_clear()
    one = Upgrade(workspace, judge(verdict)).lab(catalog.find(lab.id))
    return [step.action for step in one.steps]


@pytest.fixture
def started(in_workspace: Workspace, lab: Lab, lab_command: LabCommand) -> Path:
    """The learner's file of the started lab."""
    assert lab_command("start", "03")[0] == 0
    return in_workspace.attempt(lab) / "policy.py"


@pytest.fixture
def passed(started: Path, lab: Lab, lab_command: LabCommand) -> Path:
    """The same, passed through the grader."""
    started.write_bytes((lab.solution / "policy.py").read_bytes())
    assert lab_command("grade", "03")[0] == 0
    return started


def test_an_untouched_file_becomes_the_new_starter_and_is_backed_up(
    lab_command: LabCommand, in_workspace: Workspace, started: Path, lab: Lab
) -> None:
    before = started.read_bytes()
    change(lab.folder / "policy.py")
    code, out, _ = lab_command("upgrade")
    assert code == 0
    assert "policy.py is the new starter" in out
    assert started.read_bytes() == (lab.folder / "policy.py").read_bytes()
    [kept] = (in_workspace.state / "backups").glob("*/*/policy.py")
    assert kept.read_bytes() == before
    assert lab_command("diff", "03")[1].strip() == "You have not changed lab 03 yet."
    assert "Nothing to upgrade." in lab_command("upgrade")[1]


def test_an_edited_file_is_left_alone_and_the_new_starter_is_beside_it(
    lab_command: LabCommand, started: Path, lab: Lab
) -> None:
    change(started, "\nmine = 1\n")
    mine, stamp = started.read_bytes(), started.stat().st_mtime_ns
    change(lab.folder / "policy.py")
    assert "it was kept" in lab_command("upgrade")[1].replace("\n     ", " ")
    assert (started.read_bytes(), started.stat().st_mtime_ns) == (mine, stamp)
    beside = started.parent / "new_starter" / "policy.py"
    assert beside.read_bytes() == (lab.folder / "policy.py").read_bytes()
    assert "+mine = 1" in lab_command("diff", "03")[1]
    assert "NEWER" not in lab_command("diff", "03")[1]
    assert "Nothing to upgrade." in lab_command("upgrade")[1]


def test_a_new_file_of_a_lab_is_added(workspace: Workspace, lab: Lab) -> None:
    workspace.start(lab)
    (workspace.attempt(lab) / "policy.py").write_text("mine = 1\n")
    toml = lab.folder / "lab.toml"
    toml.write_text(toml.read_text().replace('["policy.py"]', '["policy.py", "train.py"]'))
    (lab.folder / "train.py").write_text("steps = 3\n")
    assert upgraded(workspace, lab) == ["added"]
    assert (workspace.attempt(lab) / "train.py").read_text() == "steps = 3\n"
    assert (workspace.attempt(lab) / "policy.py").read_text() == "mine = 1\n"


def test_a_deleted_file_stays_deleted(workspace: Workspace, lab: Lab) -> None:
    workspace.start(lab)
    (workspace.attempt(lab) / "policy.py").unlink()
    change(lab.folder / "policy.py")
    assert upgraded(workspace, lab) == []


@pytest.mark.slow
def test_a_pass_that_still_holds_is_not_asked_again(lab_command: LabCommand, passed: Path, lab: Lab) -> None:
    assert "Nothing to upgrade." in lab_command("upgrade")[1]
    change(lab.folder / "checks.py")
    passed.write_text("broken = ")  # played with after the pass: the stored submission is graded, not this one
    out = lab_command("upgrade")[1]
    assert "your fix passes the new checks" in out
    assert json.loads(lab_command("list", "--json")[1])["labs"][0]["status"] == "passed"
    assert "Nothing to upgrade." in lab_command("upgrade")[1]


@pytest.mark.slow
def test_a_pass_that_no_longer_holds_is_asked_again(
    lab_command: LabCommand, in_workspace: Workspace, passed: Path, lab: Lab
) -> None:
    mine = passed.read_bytes()
    before = progress.read(in_workspace).progress.labs["03"]
    checks = lab.folder / "checks.py"
    checks.write_text(checks.read_text().replace("action * std + mean,", "action * std + mean + 1,"))
    document = json.loads(lab_command("upgrade", "--json")[1])
    [one] = document["labs"]
    assert [step["action"] for step in one["steps"]] == ["checks", "again"]
    assert (Path(document["backup"]) / ".lab" / "progress.json").is_file()
    assert passed.read_bytes() == mine
    assert progress.read(in_workspace).progress.status("03") == "started"
    assert "Nothing to upgrade." in lab_command("upgrade")[1]

    checks.write_text(checks.read_text().replace("action * std + mean + 1,", "action * std + mean,"))
    assert lab_command("grade", "03")[0] == 0
    after = progress.read(in_workspace).progress.labs["03"]
    assert (after.status, after.passed_at, after.grades_to_pass) == ("passed", before.passed_at, before.grades_to_pass)


def test_only_prose_that_changes_grades_nothing(workspace: Workspace, lab: Lab) -> None:
    before = checks_hash(lab)
    checks = lab.folder / "checks.py"
    checks.write_text(f"# A comment.\n{checks.read_text().replace('the arm arrives', 'the arm gets there')}")
    assert checks_hash(lab) == before
    change(lab.folder / "probe.py")
    assert checks_hash(lab) != before


def old_workspace(workspace: Workspace, lab: Lab) -> None:
    """A passed lab of a release that stored neither the submission nor the checks."""
    workspace.start(lab)
    progress.record(workspace, progress.started("03", datetime(2025, 1, 1, tzinfo=UTC)))
    progress.record(workspace, progress.graded("03", True, datetime(2025, 1, 2, tzinfo=UTC)))
    (workspace.attempt(lab) / "policy.py").write_text("mine = 1\n")


def test_in_an_old_workspace_a_pass_stays_when_the_file_of_now_does_not_pass(workspace: Workspace, lab: Lab) -> None:
    old_workspace(workspace, lab)
    assert upgraded(workspace, lab, "failed") == ["unsure"]
    assert progress.read(workspace).progress.status("03") == "passed"
    assert upgraded(workspace, lab, "failed") == []


def test_in_an_old_workspace_a_file_that_passes_is_kept(workspace: Workspace, lab: Lab) -> None:
    old_workspace(workspace, lab)
    assert upgraded(workspace, lab) == ["passes"]
    assert (workspace.passed(lab) / "policy.py").read_text() == "mine = 1\n"
    change(lab.folder / "policy.py")
    assert upgraded(workspace, lab, "failed") == ["checks", "again", "beside"]


def test_what_could_not_be_graded_is_tried_again(workspace: Workspace, lab: Lab) -> None:
    old_workspace(workspace, lab)
    assert upgraded(workspace, lab, "error") == ["not_graded"]
    assert upgraded(workspace, lab, "passed") == ["passes"]


def test_a_lab_that_is_new_since_the_last_upgrade_is_told_once(
    lab_command: LabCommand, in_workspace: Workspace, lab: Lab
) -> None:
    progress.record(in_workspace, progress.knows(["01"]))
    assert "03  new lab" in lab_command("upgrade")[1]
    assert "Nothing to upgrade." in lab_command("upgrade")[1]


def test_without_a_workspace_nothing_is_made(
    lab_command: LabCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "collection")
    before = sorted(tmp_path.rglob("*"))
    assert lab_command("upgrade")[0] == 0
    assert sorted(tmp_path.rglob("*")) == before


KILLED = """
    import os, shutil, signal, sys
    from pathlib import Path
    from labs.grading import Grade
    from labs.grading.catalog import find
    from labs.learner import progress, upgrade, workspace

    left = int(sys.argv[2])

    def counted(function, after):
        def call(*arguments, **keywords):
            global left
            left -= 1
            if left == 0 and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*arguments, **keywords)
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result
        return call

    after = sys.argv[3] == "after"
    upgrade.write_atomically = counted(upgrade.write_atomically, after)
    upgrade.shutil.copy2 = counted(shutil.copy2, after)
    progress.write_atomically = counted(progress.write_atomically, after)
    workspace.Workspace._replace = staticmethod(counted(workspace.Workspace._replace, after))
    failed = lambda lab, folder: Grade(lab.id, lab.slug, "failed", "Too far.", 0.0, 0)
    run = upgrade.Upgrade(workspace.Workspace(Path(sys.argv[1])), failed)
    run.lab(find("03"))
    run.finish([find("03")])
    sys.exit(99)
"""


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("edited", [False, True], ids=["untouched", "passed"])
def test_a_kill_at_any_write_is_continued_by_the_next_run(
    workspace: Workspace, lab: Lab, tmp_path: Path, edited: bool
) -> None:
    def prepared(at: Path) -> Workspace:
        shutil.copytree(workspace.root, at)
        return Workspace(at)

    if edited:
        old_workspace(workspace, lab)
        workspace.keep_passed(lab)
    else:
        workspace.start(lab)
        progress.record(workspace, progress.started("03", datetime(2025, 1, 1, tzinfo=UTC)))
    change(lab.folder / "policy.py")
    whole = prepared(tmp_path / "whole")
    finish(whole, lab)
    code = textwrap.dedent(KILLED)
    for moment in ("before", "after"):
        for count in range(1, 30):
            here = prepared(tmp_path / f"{moment}-{count}")
            died = run([sys.executable, "-c", code, here.root, str(count), moment])
            if died.returncode == 99:
                break
            assert died.returncode == -signal.SIGKILL, died.stderr
            finish(here, lab)
            assert state(here, lab) == state(whole, lab), (moment, count)
            assert [step.steps for step in finish(here, lab)] == [()]
        assert count > 3, "no write was interrupted"


def finish(workspace: Workspace, lab: Lab) -> list[Upgraded]:
    catalog.all_labs.cache_clear()
    run = Upgrade(workspace, judge("failed"))
    done = [run.lab(catalog.find(lab.id))]
    run.finish(catalog.all_labs())
    return done


def state(workspace: Workspace, lab: Lab) -> dict[str, object]:
    """What a learner has: the files of the lab and its starter, and the progress without the time of the upgrade."""
    folders = (workspace.attempt(lab), workspace.kept_starter(lab), workspace.passed(lab))
    files = {
        str(path.relative_to(workspace.root)): path.read_text() for folder in folders for path in folder.rglob("*.py")
    }
    known = progress.read(workspace).progress
    return files | {"status": known.status("03"), "graded_by": known.labs["03"].graded_by, "known": known.known}
