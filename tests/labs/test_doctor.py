"""`lab doctor` says which promise of the sandbox does not hold on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest

from labs import grading
from labs.grading import Protection, SandboxError
from labs.learner import doctor
from labs.learner.workspace import Workspace

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

Run = Callable[..., tuple[int, str, str]]
LOST = ["signals to one process", "subreaper"]


@pytest.mark.extended
def test_each_promise_that_does_not_hold_here_is_named_with_what_can_happen(
    lab_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = [Protection(one.name, one.name not in LOST, one.promise, one.without) for one in grading.protections()]
    monkeypatch.setattr(grading, "protections", lambda: tried, raising=False)
    code, printed, _ = lab_command("doctor", "--json")
    rows = [one for one in json.loads(printed)["conditions"] if one["name"] == "sandbox"]
    assert code == 0
    assert [one["state"] for one in rows] == ["ok" if one.active else "limited" for one in tried]
    for row, one in zip(rows, tried, strict=True):
        assert (one.promise in row["found"]) == (one.name != "memory limit")
        assert ("not promised on this machine" in row["found"]) == (one.without in row["meaning"]) == (not one.active)
    assert rows[-1]["found"] == "one process of a submission cannot use more than its limit of memory"
    shown = " ".join(lab_command("doctor")[1].split())
    assert "not promised on this machine: no process of a submission outlives its grade" in shown


@pytest.mark.parametrize(
    ("content", "told"), [('{"schema": 999}', "was written by a newer version of the lab"), ("{", "is damaged")]
)
def test_a_workspace_whose_progress_cannot_be_read_is_not_fine(
    lab_command: Run, in_workspace: Workspace, content: str, told: str
) -> None:
    path = in_workspace.state / "progress.json"
    path.write_text(content)
    code, printed, _ = lab_command("doctor", "--json")
    [row] = [one for one in json.loads(printed)["conditions"] if one["name"] == "workspace"]
    assert (code, row["state"], row["found"]) == (1, "missing", "its progress cannot be read")
    assert told in row["meaning"]
    assert [one.name for one in in_workspace.state.iterdir()] == [path.name], "nothing is moved"
    path.write_text('{"schema": 1}')
    assert lab_command("doctor")[0] == 0


def test_a_system_that_starts_no_process_is_a_missing_sandbox(
    lab_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise SandboxError("No process could be started.")

    monkeypatch.setattr(grading, "protections", refused, raising=False)
    code, printed, _ = lab_command("doctor", "--json")
    [row] = [one for one in json.loads(printed)["conditions"] if one["name"] == "sandbox"]
    assert (code, row["state"], row["meaning"]) == (1, "missing", "No process could be started.")


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited on Linux only")
def test_a_limited_address_space_must_hold_what_torch_maps_and_a_submission(
    lab_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    assert doctor.mapped_by_torch() > 100 << 20
    monkeypatch.setattr(doctor, "mapped_by_torch", lambda: 3 << 30)
    for gibibytes, state in ((6, "limited"), (8, "ok")):
        monkeypatch.setattr(resource, "getrlimit", lambda _, most=gibibytes << 30: (most, most))
        rows = json.loads(lab_command("doctor", "--json")[1])["conditions"]
        [row] = [one for one in rows if one["name"] == "limits"]
        assert row["state"] == state
        assert ("limited to 6144 MiB" in row["found"]) == (state == "limited")
