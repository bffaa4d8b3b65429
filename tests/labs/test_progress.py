"""Progress is never lost, and counts what a learner did."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import textwrap
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from child_processes import HANG_S, run, started
from labs.cli import console
from labs.cli.show_progress import show_progress
from labs.grading.catalog import Lab
from labs.learner import progress
from labs.learner.export import export_progress, import_progress
from labs.learner.progress import LabProgress, Progress, ProgressError
from labs.learner.status import LEVELS, learner_status, xp_for
from labs.learner.workspace import Workspace

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=10)


def after(*changes: progress.Change) -> Progress:
    now = Progress()
    for change in changes:
        now = change(now)
    return now


def test_a_pass_records_when_how_often_and_with_how_much_help() -> None:
    done = after(
        progress.started("03", NOON),
        progress.graded("03", False, NOON, "expand_the_target"),
        progress.hinted("03", 1, NOON),
        progress.graded("03", True, LATER),
        progress.hinted("03", 3, LATER),
        progress.graded("03", True, LATER + timedelta(hours=1)),
    ).labs["03"]
    assert done.status == "passed"
    assert (done.grades, done.grades_to_pass, done.hints, done.hints_to_pass) == (3, 2, 3, 1)
    assert done.seconds_to_fix == 600
    assert done.wrong_fixes == ("expand_the_target",)


def test_a_diagnosis_before_the_pass_counts_like_one_hint() -> None:
    before = [progress.started("03", NOON), progress.hinted("03", 1, NOON)]
    twice = [progress.diagnosed("03", NOON)] * 2
    assert after(*before, *twice, progress.graded("03", True, LATER)).labs["03"].hints_to_pass == 2
    assert after(*before, progress.graded("03", True, LATER), *twice).labs["03"].hints_to_pass == 1


def test_starting_again_does_not_reset_the_clock() -> None:
    assert after(progress.started("03", NOON), progress.started("03", LATER)).labs["03"].started_at == NOON


def test_who_gave_up_stays_so_even_after_a_pass(lab: Lab) -> None:
    done = after(progress.started("03", NOON), progress.gave_up("03", NOON), progress.graded("03", True, LATER))
    assert done.status("03") == "given_up"
    assert xp_for(lab, done.labs["03"]) == 0


def test_reading_the_solution_after_a_pass_is_no_giving_up() -> None:
    done = after(progress.started("03", NOON), progress.graded("03", True, NOON), progress.gave_up("03", LATER))
    assert done.status("03") == "passed"


def test_each_hint_before_the_pass_costs_the_same_share(lab: Lab) -> None:
    earned = [
        xp_for(lab, LabProgress(started_at=NOON, passed_at=LATER, grades=1, hints=hints, hints_to_pass=hints))
        for hints in range(4)
    ]
    assert earned == [200, 160, 120, 80]


@given(xp=st.integers(0, 100))
def test_levels_never_fall_as_xp_grows(xp: int) -> None:
    floors = [floor for floor, _ in LEVELS]
    assert floors == sorted(set(floors))
    assert floors[0] == 0


def test_the_status_after_a_first_unaided_pass(lab: Lab) -> None:
    now = learner_status(after(progress.started("03", NOON), progress.graded("03", True, LATER)), [lab])
    assert (now.xp, now.level, now.level_name, now.next_level_at) == (200, 2, "breakpoint", 600)
    assert {achievement.name for achievement in now.achievements} == {"first light", "measure twice"}


moments = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC))
labs_progress = st.builds(
    LabProgress,
    started_at=moments,
    grades=st.integers(0, 50),
    hints=st.integers(0, 3),
    passed_at=st.none() | moments,
    gave_up_at=st.none() | moments,
)
progresses = st.builds(Progress, labs=st.dictionaries(st.sampled_from(["03", "12", "41"]), labs_progress))


@given(mine=progresses)
def test_a_progress_survives_the_file_unchanged(mine: Progress) -> None:
    assert progress.decode(progress.encode(mine), "here") == mine


@given(mine=progresses, theirs=progresses)
def test_a_merge_keeps_every_lab_and_never_goes_back(mine: Progress, theirs: Progress) -> None:
    rank = ["new", "started", "given_up", "passed"].index
    together = progress.merged(theirs)(mine)
    assert set(together.labs) == set(mine.labs) | set(theirs.labs)
    for lab_id in together.labs:
        best = max(rank(mine.status(lab_id)), rank(theirs.status(lab_id)))
        assert rank(together.status(lab_id)) == best


@given(mine=progresses)
def test_merging_with_oneself_changes_nothing(mine: Progress) -> None:
    assert progress.merged(mine)(mine).labs == mine.labs


RECORD_TWENTY = """
    import sys
    from datetime import UTC, datetime
    from pathlib import Path
    from labs.learner import progress
    from labs.learner.workspace import Workspace
    for _ in range(20):
        progress.record(Workspace(Path(sys.argv[1])), progress.graded("03", False, datetime.now(UTC)))
"""


def test_two_processes_at_once_lose_nothing(workspace: Workspace) -> None:
    code = textwrap.dedent(RECORD_TWENTY)
    command = [sys.executable, "-c", code, workspace.root]
    with started(command) as one, started(command) as other:
        assert [process.wait(timeout=HANG_S) for process in (one, other)] == [0, 0]
    assert progress.read(workspace).progress.labs["03"].grades == 40


KILLED_IN_MID_WRITE = """
    import os, signal, sys
    from datetime import UTC, datetime
    from pathlib import Path
    from labs.learner import progress
    from labs.learner.workspace import Workspace
    os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)  # the bytes are written, the rename is not done
    progress.record(Workspace(Path(sys.argv[1])), progress.graded("03", True, datetime.now(UTC)))
"""


def test_a_kill_in_mid_write_leaves_the_old_progress_and_no_lock(workspace: Workspace) -> None:
    progress.record(workspace, progress.started("03", NOON))
    before = (workspace.state / "progress.json").read_bytes()
    code = textwrap.dedent(KILLED_IN_MID_WRITE)
    died = run([sys.executable, "-c", code, workspace.root])
    assert died.returncode == -signal.SIGKILL
    assert (workspace.state / "progress.json").read_bytes() == before
    progress.record(workspace, progress.graded("03", False, LATER))
    assert progress.read(workspace).progress.labs["03"].grades == 1


def test_a_full_disk_leaves_the_old_progress(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    progress.record(workspace, progress.started("03", NOON))
    before = sorted(workspace.state.iterdir())

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        progress.record(workspace, progress.graded("03", True, LATER))
    monkeypatch.undo()
    assert progress.read(workspace).progress.status("03") == "started"
    assert sorted(workspace.state.iterdir()) == before


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": 1, "labs": {"03": {"grades": -1}}}', b"\xff\xfe"])
@pytest.mark.parametrize("writing", [False, True])
def test_a_corrupted_file_is_kept_aside_with_a_sentence(workspace: Workspace, content: bytes, writing: bool) -> None:
    (workspace.state / "progress.json").write_bytes(content)
    if writing:
        loaded = progress.record(workspace, progress.started("03", NOON))
        assert loaded.progress.status("03") == "started"
    else:
        loaded = progress.read(workspace)
        assert loaded.progress == Progress()
    (kept,) = workspace.state.glob("progress.unreadable-*.json")
    assert kept.read_bytes() == content
    assert loaded.notice is not None
    assert str(kept) in loaded.notice


@pytest.mark.parametrize("writing", [False, True])
def test_a_corrupted_file_is_replaced_by_the_one_before_the_last_change(workspace: Workspace, writing: bool) -> None:
    for change in (progress.started("03", NOON), progress.graded("03", True, LATER), progress.hinted("03", 1, LATER)):
        progress.record(workspace, change)
    path = workspace.state / "progress.json"
    with path.open("r+b") as file:  # in place, as an editor may write
        file.truncate(40)
    loaded = progress.record(workspace, progress.started("12", LATER)) if writing else progress.read(workspace)
    assert loaded.notice is not None
    assert "your progress is what it was before the last change" in loaded.notice
    again = progress.read(workspace)
    assert (again.notice, again.progress) == (None, loaded.progress)
    assert (again.progress.labs["03"].status, again.progress.labs["03"].hints) == ("passed", 0)
    assert again.progress.status("12") == ("started" if writing else "new")


def test_the_second_of_two_processes_that_find_a_corrupted_file_leaves_the_restored_one(workspace: Workspace) -> None:
    for change in (progress.started("03", NOON), progress.graded("03", True, LATER)):
        progress.record(workspace, change)
    path = workspace.state / "progress.json"
    path.write_bytes(b"{")
    first = progress.read(workspace).progress
    with workspace.locked():
        second = progress._renamed(path)
    assert (second.notice, second.progress) == (None, first)
    assert len(list(workspace.state.glob("progress.unreadable-*.json"))) == 1


def test_a_newer_schema_is_refused_and_left_alone(workspace: Workspace) -> None:
    newer = json.dumps({"schema": 2, "labs": [], "galaxy": True}).encode()
    (workspace.state / "progress.json").write_bytes(newer)
    for use in (lambda: progress.read(workspace), lambda: progress.record(workspace, progress.started("03", NOON))):
        with pytest.raises(ProgressError, match="newer version"):
            use()
    assert (workspace.state / "progress.json").read_bytes() == newer


def test_an_export_moves_to_another_machine(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> None:
    progress.record(workspace, progress.graded("03", True, NOON))
    folder = tmp_path_factory.mktemp("usb")
    export_progress(progress.read(workspace).progress, folder / "mine.json")
    other = Workspace(folder / "workspace")
    assert import_progress(other, folder / "mine.json") == 1
    assert progress.read(other).progress == progress.read(workspace).progress


def test_importing_something_else_changes_nothing(workspace: Workspace) -> None:
    progress.record(workspace, progress.started("03", NOON))
    other = workspace.root / "grades.json"
    other.write_text('{"schema": 1, "labs": [{"id": "03"}]}')
    with pytest.raises(ProgressError, match="not an exported progress"):
        import_progress(workspace, other)
    assert progress.read(workspace).progress.status("03") == "started"


def test_the_file_says_its_schema(workspace: Workspace) -> None:
    progress.record(workspace, progress.started("03", NOON))
    assert msgspec.json.decode((workspace.state / "progress.json").read_bytes())["schema"] == 1


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("columns", [40, 59, 60, 80, 120])
def test_the_table_keeps_its_numbers_on_every_width(
    lab: Lab, columns: int, language: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console.out, "_width", columns)
    monkeypatch.setattr("labs.locale._current", language)
    graded = [progress.graded("03", passed, LATER) for passed in (*[False] * 122, True)]
    show_progress([lab], after(progress.started("03", NOON), *graded))
    [line] = [line for line in capsys.readouterr().out.splitlines() if "● 03" in line]
    assert line.split()[-1] == "200"
    assert ("123" in line) is (columns >= 60)
    assert cell_len(line) <= columns
