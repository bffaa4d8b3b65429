"""Whole runs: on the fixture lab, whose checks are cheap, with and without a planted hole, and on a real lab."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from labs.authoring.bench import Bench, BenchError, Refusal, Verdict
from labs.authoring.mutation.journal import Journal
from labs.authoring.mutation.mutants import mutants_of, read
from labs.authoring.mutation.mutate import mutate
from labs.authoring.mutation.reasons import FILE
from labs.authoring.mutation.record import write_record
from labs.grading import ForkServer
from labs.grading.catalog import Lab, find

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

Run = Callable[..., tuple[int, str, str]]
HANGS = "while True: pass"
DIES = "import os; os._exit(3)"


def make_blind(lab: Lab) -> None:
    """Plant a hole: the structural checks compare what they measured with itself."""
    checks = lab.folder / "checks.py"
    text = checks.read_text()
    for judged, blind in (
        (".close_to(action * std + mean,", ".close_to(measured,"),
        ('.close_to(there["before"],', '.close_to(there["after"],'),
    ):
        assert judged in text
        text = text.replace(judged, blind)
    checks.write_text(text)


@pytest.mark.extended
@pytest.mark.slow
def test_a_weak_check_leaves_a_hole_and_a_reason_closes_it(lab: Lab, lab_command: Run) -> None:
    make_blind(lab)
    code, out, _ = lab_command("dev", "mutate", "03", "--only", "swap_arithmetic", "--json")
    (found,) = json.loads(out)["labs"]
    assert code == 1
    holes = [one for one in found["mutants"] if one["outcome"] == "hole"]
    assert len(holes) == found["counts"]["holes"] == len(found["mutants"]) > 2
    diffs = [one["diff"] for one in holes]
    assert any(
        "-    return action * std + mean" in diff and "+    return action * std - mean" in diff for diff in diffs
    )

    reasons = "".join(f'{one["id"]} = "Planted."\n' for one in holes)
    (lab.folder / FILE).write_text(reasons)
    code, out, _ = lab_command("dev", "mutate", "03", "--only", "swap_arithmetic")
    assert code == 0
    assert f"equivalent {len(holes)} · holes 0" in out

    (lab.folder / FILE).write_text(reasons + 'drop_term-00000000 = "Gone."\n')
    code, _, err = lab_command("dev", "mutate", "03", "--only", "swap_arithmetic")
    assert code == 2
    assert "drop_term-00000000 is no mutant of lab 03" in " ".join(err.split())


@pytest.mark.extended
def test_only_recorded_holes_are_run_again(lab: Lab, lab_command: Run) -> None:
    make_blind(lab)
    found = mutate(lab, most=3)
    hole, *others = found.record.mutants
    assert hole.outcome == "hole"
    refused = (replace(one, outcome="refused") for one in others)
    write_record(lab, replace(found.record, mutants=(hole, *refused)))
    assert mutate(lab, holes=True).record.mutants == (hole,)
    assert lab_command("dev", "mutate", "03", "--holes", "--write")[0] == 2


@pytest.mark.extended
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_was_cut_off_is_continued(lab: Lab, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = mutate(lab, only="drop_term")
    [kept] = (lab.solution.parents[1] / "build" / "mutants").iterdir()
    lines = [line for line in kept.read_text().splitlines(keepends=True) if line.strip()]
    assert len(lines) == len(whole.mutants) > 2
    kept.write_text("".join([*lines[:-2], lines[-2][:20]]))  # the disk was full in the middle of a line
    graded: list[str] = []

    def verdicts(bench: Bench, solution: Any, submissions: Any, *others: Any) -> Any:
        graded.extend(name for name, _ in submissions)
        return run(bench, solution, submissions, *others)

    run = Bench.verdicts
    if jobs == 1:  # another process has its own
        monkeypatch.setattr(Bench, "verdicts", verdicts)
    again = mutate(lab, only="drop_term", jobs=jobs)
    assert again.record.mutants == whole.record.mutants
    assert jobs > 1 or len(graded) == 2
    assert len(Journal(lab, names=False).verdicts("structural")) == len(lines)


def test_a_failure_of_the_grader_is_no_verdict_that_is_kept(lab: Lab) -> None:
    journal = Journal(lab, names=False)
    journal.add("structural", "a", Verdict(Refusal("", "the disk is full", by_grader=True), 0.1, 0.2))
    kept = Verdict(Refusal("test_equals_the_reference", "It is not."), 0.1, 0.2, "drop_the_mean")
    journal.add("structural", "b", kept)
    assert journal.verdicts("structural") == {"b": kept}
    assert journal.verdicts("outcomes") == {}


@pytest.mark.extended
def test_another_state_of_the_lab_starts_again_and_a_whole_run_leaves_no_journal(lab: Lab) -> None:
    folder = lab.solution.parents[1] / "build" / "mutants"
    mutate(lab, most=1)
    [first] = folder.iterdir()
    make_blind(lab)
    assert Journal(lab, names=False).verdicts("structural") == {}
    everything = mutants_of(lab)[:2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labs.authoring.mutation.mutate.mutants_of", lambda _: everything)
        mutate(lab)
    assert list(folder.iterdir()) == [first]


@pytest.mark.extended
def test_a_mutant_that_gets_the_name_of_a_wrong_fix_is_recorded_with_it(lab: Lab) -> None:
    found = mutate(lab, only="drop_term", names=True)
    assert {one.named for one in found.record.mutants} == {None, "drop_the_mean"}


@pytest.mark.extended
def test_a_check_that_refuses_by_chance_is_found_by_many_seeds(lab: Lab) -> None:
    solution = read(lab, lab.solution)
    with ForkServer() as server:
        bench = Bench(lab, server)
        assert bench.over_seeds(solution, range(12), lambda _: None) == {}
        checks = lab.folder / "checks.py"
        judged = ".close_to(action * std + mean,"
        checks.write_text(checks.read_text().replace(judged, ".close_to(action * std + mean + rng.integer(0, 2),"))
        refusals = bench.over_seeds(solution, range(12), lambda _: None)
        others = {"test_round_trip"}
        assert bench.over_seeds(solution, range(12), lambda _: None, checks=others) == {}
    assert 0 < len(refusals) < 12
    assert {one.check for one in refusals.values()} == {"test_equals_the_reference"}


@pytest.mark.extended
def test_only_an_outcome_check_refuses_what_the_others_do_not_look_at(lab: Lab) -> None:
    make_blind(lab)
    result = mutate(lab, only="drop_term", outcomes=True, most=2)
    assert [(one.outcome, one.by, one.check) for one in result.record.mutants] == [
        ("refused", "outcome", "test_reaches")
    ] * 2
    assert result.record.counts.refused_outcome == 2


@pytest.mark.extended
def test_two_jobs_find_what_one_finds(lab: Lab) -> None:
    alone = mutate(lab, only="swap_arithmetic", names=True)
    together = mutate(lab, only="swap_arithmetic", names=True, jobs=2)
    assert alone.record.mutants == together.record.mutants
    assert "drop_the_mean" not in {one.named for one in alone.record.mutants}
    assert alone.record.counts.refused_structural == len(alone.mutants) > 1


@pytest.mark.extended
@pytest.mark.slow
def test_a_submission_that_hangs_or_dies_is_refused_by_the_check_that_waits_for_it(lab: Lab) -> None:
    solution = read(lab, lab.solution)
    text = solution["policy.py"]
    submissions = [
        (name, {"policy.py": text.replace("return action * std + mean", body)})
        for name, body in (("hangs", HANGS), ("dies", DIES))
    ]
    with ForkServer() as server:
        verdicts = Bench(lab, server).verdicts(solution, submissions, 1, lambda _: None)
    for name, said in (("hangs", "CPU|did not finish"), ("dies", "exit status 3|ended")):
        refusal = verdicts[name].refusal
        assert refusal is not None
        assert refusal.check == "test_equals_the_reference"
        assert not refusal.by_grader
        assert re.search(said, refusal.message)


@pytest.mark.slow
def test_checks_that_refuse_the_solution_are_an_error(lab: Lab) -> None:
    (lab.solution / "policy.py").write_text((lab.folder / "policy.py").read_text())
    with pytest.raises(BenchError, match="test_equals_the_reference refuses the solution"):
        mutate(lab, most=1)


@pytest.mark.extended
def test_a_reason_for_a_mutant_that_is_refused_is_said_and_counts_for_nothing(lab: Lab, lab_command: Run) -> None:
    name = next(one.id for one in mutants_of(lab) if one.operator == "swap_arithmetic")
    (lab.folder / FILE).write_text(f'{name} = "It is not."\n')
    code, out, _ = lab_command("dev", "mutate", "03", "--only", "swap_arithmetic", "--json")
    (document,) = json.loads(out)["labs"]
    assert (code, document["refused_despite_reason"], document["counts"]["holes"]) == (1, [name], 0)
    assert next(one for one in document["mutants"] if one["id"] == name)["outcome"] == "refused"


def test_part_of_the_mutants_is_not_recorded(lab: Lab, lab_command: Run) -> None:
    code, _, err = lab_command("dev", "mutate", "03", "--only", "swap_arithmetic", "--write")
    assert code == 2
    assert "mutants.json holds all mutants" in err
    assert not (lab.folder / "mutants.json").exists()


@pytest.mark.extended
def test_a_lab_of_the_course_refuses_a_fix_on_some_calls_only() -> None:
    result = mutate(find("03"), only="fix_only_every_tenth_call")
    (only,) = result.record.mutants
    assert only.outcome == "refused"
    assert only.check is not None  # which of several is met first depends on what each cost the solution in this run
    assert only.check.startswith("test_")
    assert result.record.cpu_s > 0
