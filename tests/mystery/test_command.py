"""`lab mystery` as a learner uses it: make one, be refused, read hints, pass, and find it in the progress."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from labs import cli
from labs.learner.workspace import Workspace, make_workspace
from labs.mystery.mystery_lab import MysteryLab, find_mystery, planted_in, solution_of
from labs.mystery.plant import Key

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/mystery")

Lab = Callable[..., tuple[int, str, str]]
SEED = "11"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """An empty workspace that is the current folder."""
    make_workspace(tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    return Workspace(tmp_path / "mine")


@pytest.fixture
def lab(here: Workspace, capfd: pytest.CaptureFixture[str]) -> Lab:
    """`lab ARGS…` in this process: exit code, stdout, stderr."""
    from labs.cli import console

    console.out._width = console.err._width = None

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = cli.main(list(arguments))
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


def begun(lab: Lab, here: Workspace, *options: str) -> MysteryLab:
    """A mystery of one seed, made by the command."""
    code, _, problem = lab("mystery", "--seed", SEED, "--level", "2", *options)
    assert code == 0, problem
    return find_mystery("mystery", here)


def test_it_writes_the_planted_files_and_nowhere_the_healthy_ones(lab: Lab, here: Workspace) -> None:
    mystery = begun(lab, here)
    planted = planted_in(mystery)
    for name in mystery.editable:
        assert (here.attempt(mystery) / name).read_text(encoding="utf-8") == planted.files[name]
    changed = next(name for name in mystery.editable if planted.files[name] != planted.program.files[name])
    texts = [path.read_text(encoding="utf-8") for path in here.root.rglob("*") if path.is_file()]
    assert planted.files[changed] in texts
    assert planted.program.files[changed] not in texts


def test_a_second_call_keeps_what_the_learner_wrote(lab: Lab, here: Workspace) -> None:
    mystery = begun(lab, here)
    file = here.attempt(mystery) / "policy.py"
    file.write_text("# mine\n", encoding="utf-8")
    begun(lab, here)
    assert file.read_text(encoding="utf-8") == "# mine\n"


def test_three_hints_go_from_the_place_to_the_fault(lab: Lab, here: Workspace) -> None:
    mystery = begun(lab, here)
    operator = planted_in(mystery).operators[0]
    shown = [" ".join(lab("hint", "mystery")[1].split()) for _ in range(3)]
    assert "Look at" in shown[0]
    assert operator.wrong.split(",")[0].replace("`", "") in shown[2]


def test_progress_lists_it(lab: Lab, here: Workspace) -> None:
    begun(lab, here)
    document = json.loads(lab("progress", "--json")[1])
    assert [(one["id"], one["status"]) for one in document["mysteries"]] == [(f"mystery-{SEED}-level2", "started")]
    assert f"mystery-{SEED}-level2" in lab("progress")[1]


def test_without_one_the_command_says_how_to_make_it(lab: Lab, here: Workspace) -> None:
    code, _, problem = lab("grade", "mystery")
    assert code == 2
    assert "`lab mystery` makes today's." in problem
    code, _, problem = lab("hint", "mystery-5-level2-loop")
    assert code == 2
    assert "`lab mystery --seed 5 --level 2 --chapter loop` makes it." in problem


def test_one_of_another_release_is_not_graded(lab: Lab, here: Workspace) -> None:
    mystery = begun(lab, here)
    record = mystery.folder / "mystery.json"
    changed = json.loads(record.read_text(encoding="utf-8")) | {"digest": "of another release"}
    record.write_text(json.dumps(changed), encoding="utf-8")
    code, _, problem = lab("grade", "mystery")
    assert code == 2
    assert "another release" in problem
    (here.attempt(mystery) / "policy.py").write_text("# of another release\n", encoding="utf-8")
    begun(lab, here)
    assert find_mystery("mystery", here).symptom
    assert (here.attempt(mystery) / "policy.py").read_text(encoding="utf-8") == planted_in(mystery).files["policy.py"]
    kept = [path.read_text(encoding="utf-8") for path in here.state.glob("attempts/*/*/policy.py")]
    assert kept == ["# of another release\n"]


def test_an_unknown_chapter_is_refused(lab: Lab) -> None:
    code, _, problem = lab("mystery", "--chapter", "loops")
    assert code == 2
    assert "There is no chapter loops." in problem


@pytest.mark.extended
@pytest.mark.slow
def test_the_grader_refuses_it_as_planted_and_accepts_it_without_the_fault(lab: Lab, here: Workspace) -> None:
    mystery = begun(lab, here)
    code, graded, _ = lab("grade", "mystery", "--json")
    assert code == 1
    failed = {check["id"] for check in json.loads(graded)["labs"][0]["checks"] if check["outcome"] == "failed"}
    assert f"test_{planted_in(mystery).operators[0].shows}" in failed
    solution_of(mystery, here.attempt(mystery))
    code, graded, _ = lab("grade", str(here.attempt(mystery) / "policy.py"), "--json")
    assert code == 0, graded
    assert lab("solution", "mystery")[0] == 0
    assert json.loads(lab("progress", "--json")[1])["mysteries"][0]["status"] == "passed"


@pytest.mark.extended
@pytest.mark.slow
def test_run_shows_the_numbers_of_now_and_before(lab: Lab, here: Workspace) -> None:
    begun(lab, here)
    code, shown, _ = lab("run", "mystery")
    assert code == 0
    assert "before" in shown


def test_the_level_of_a_seed_is_the_same_everywhere() -> None:
    assert [Key(seed).actual_level for seed in range(8)] == [Key(seed).actual_level for seed in range(8)]
    assert {Key(seed).actual_level for seed in range(30)} == {1, 2, 3}
