"""The workspace never loses what a learner wrote."""

from __future__ import annotations

import shutil
import signal
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from child_processes import run
from labs.grading.catalog import Lab
from labs.learner import former_names
from labs.learner.diff import diff_from_starter
from labs.learner.workspace import Workspace, WorkspaceError, make_workspace, resolve


def test_start_copies_the_editable_files_and_nothing_else(workspace: Workspace, lab: Lab) -> None:
    assert workspace.start(lab)
    copied = workspace.attempt(lab) / "policy.py"
    assert copied.read_bytes() == (lab.folder / "policy.py").read_bytes()
    assert [path.name for path in workspace.attempt(lab).iterdir()] == ["policy.py"]


def test_start_never_overwrites_an_attempt(workspace: Workspace, lab: Lab) -> None:
    workspace.start(lab)
    (workspace.attempt(lab) / "policy.py").write_text("mine = 1\n")
    assert not workspace.start(lab)
    assert (workspace.attempt(lab) / "policy.py").read_text() == "mine = 1\n"


def test_start_brings_back_a_deleted_file_and_leaves_the_rest(workspace: Workspace, lab: Lab) -> None:
    workspace.start(lab)
    (workspace.attempt(lab) / "policy.py").unlink()
    (workspace.attempt(lab) / "notes.txt").write_text("look at the mean")
    assert workspace.start(lab)
    assert workspace.is_started(lab)
    assert (workspace.attempt(lab) / "notes.txt").read_text() == "look at the mean"


def test_reset_keeps_every_attempt_whole(workspace: Workspace, lab: Lab) -> None:
    workspace.start(lab)
    kept = []
    for number in range(3):  # within one second: the names must not collide
        (workspace.attempt(lab) / "policy.py").write_text(f"attempt = {number}\n")
        (workspace.attempt(lab) / "notes.txt").write_text("mine")
        kept.append(workspace.reset(lab))
    assert [(folder / "policy.py").read_text() for folder in kept] == [f"attempt = {n}\n" for n in range(3)]
    assert all((folder / "notes.txt").read_text() == "mine" for folder in kept)
    assert (workspace.attempt(lab) / "policy.py").read_bytes() == (lab.folder / "policy.py").read_bytes()


def test_an_attempt_keeps_its_folder_where_a_release_renames_the_lab(
    workspace: Workspace, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.start(lab)
    (workspace.attempt(lab) / "policy.py").write_text("mine = 1\n")
    kept = workspace.reset(lab)
    (workspace.attempt(lab) / "policy.py").write_text("mine = 2\n")
    renamed = replace(lab, slug="another")
    monkeypatch.setitem(former_names.FORMER_NAMES, lab.id, (lab.name,))
    lab.folder.rename(renamed.folder)
    assert workspace.is_started(renamed)
    assert (workspace.attempt(renamed) / "policy.py").read_text() == "mine = 2\n"
    assert workspace.starter(renamed) == workspace.starter(lab)
    assert workspace.reset(renamed, datetime(2030, 1, 1, tzinfo=UTC)).parent == kept.parent


def test_reset_of_a_lab_not_started_says_what_to_do(workspace: Workspace, lab: Lab) -> None:
    with pytest.raises(WorkspaceError, match="`lab start 03`"):
        workspace.reset(lab)


def test_the_nearest_ancestor_with_a_state_folder_is_the_workspace(tmp_path: Path) -> None:
    make_workspace(tmp_path)
    deep = tmp_path / "lab03_swapped_order" / "plots"
    deep.mkdir(parents=True)
    assert resolve(start=deep).root == tmp_path.resolve()


def test_an_explicit_workspace_beats_the_ancestor(tmp_path: Path) -> None:
    make_workspace(tmp_path)
    make_workspace(tmp_path / "other")
    assert resolve(Path("other"), start=tmp_path).root == (tmp_path / "other").resolve()


def test_without_one_the_workspace_folder_below_is_meant(tmp_path: Path) -> None:
    assert resolve(start=tmp_path) == Workspace((tmp_path / "workspace").resolve())


def test_a_folder_that_is_not_a_workspace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="lab init"):
        resolve(tmp_path, start=tmp_path)


def test_a_workspace_folder_with_other_files_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "thesis.tex").write_text("…")
    with pytest.raises(WorkspaceError, match="not a lab workspace"):
        resolve(start=tmp_path)


KILLED_WHILE_STAGING = """
    import os, signal, sys
    from pathlib import Path
    from labs.grading.catalog import find
    from labs.learner import workspace

    def die(path, content):
        path.write_bytes(content[:10])
        os.kill(os.getpid(), signal.SIGKILL)

    workspace.write_atomically = die
    workspace.Workspace(Path(sys.argv[1])).{verb}(find("03"))
"""


def test_the_starter_is_remembered_as_it_was_copied(
    workspace: Workspace, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.start(lab)
    upgraded = tmp_path / "upgraded"
    shutil.copytree(lab.folder, upgraded)
    (upgraded / "policy.py").write_text("another starter\n")
    monkeypatch.setattr(Lab, "folder", property(lambda _: upgraded))
    assert diff_from_starter(lab, workspace.attempt(lab), "yours")
    assert diff_from_starter(lab, workspace.attempt(lab), "yours", starter=workspace.starter(lab)) == []
    workspace.reset(lab)
    assert (workspace.starter(lab) / "policy.py").read_text() == "another starter\n"
    shutil.rmtree(workspace.starter(lab))
    assert workspace.starter(lab) == upgraded


def test_what_is_replaced_is_removed_at_once(workspace: Workspace, lab: Lab) -> None:
    workspace.start(lab)
    for _ in range(2):
        workspace.keep_passed(lab)
    workspace.reset(lab)
    assert not list(workspace.state.glob("staging-*"))


@pytest.mark.parametrize("verb", ["start", "reset"])
def test_a_kill_half_way_leaves_no_half_lab(workspace: Workspace, lab: Lab, verb: str) -> None:
    if verb == "reset":
        workspace.start(lab)
        (workspace.attempt(lab) / "policy.py").write_text("mine = 1\n")
    code = textwrap.dedent(KILLED_WHILE_STAGING.format(verb=verb))
    died = run([sys.executable, "-c", code, workspace.root])
    assert died.returncode == -signal.SIGKILL
    if verb == "start":
        assert not workspace.attempt(lab).exists()
    else:
        assert (workspace.attempt(lab) / "policy.py").read_text() == "mine = 1\n"
    workspace.start(lab)  # the lock died with its holder, and the leftovers are swept
    assert workspace.is_started(lab)
    assert not list(workspace.state.glob("staging-*"))
