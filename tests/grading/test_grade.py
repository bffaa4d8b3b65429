"""The verdict and the content of a grade."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from labs.grading import ForkServer, MissingExtraError, declared_by, grade
from labs.grading.catalog import Lab
from labs.grading.grader import patience

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/grading")

Files = dict[str, str]

CHECK = '@check(kind="behaviour", title="t", property="p", instrument="i")\n'
ASK = 'submission.call("gripper_loss", rng.normal(3), rng.normal(3, 1))'


def test_the_solution_passes_and_every_check_ran(toy: Lab, solution: Files, server: ForkServer) -> None:
    result = grade(toy, solution, server=server)
    assert (result.verdict, result.reason) == ("passed", None)
    assert [one.outcome for one in result.checks] == ["passed"] * 3


def test_the_starter_fails_with_what_was_measured_and_what_was_expected(
    toy: Lab, starter: Files, server: ForkServer
) -> None:
    result = grade(toy, starter, server=server)
    first = result.checks[0]
    assert result.verdict == "failed"
    assert first.outcome == "failed"
    assert first.measured != pytest.approx(first.expected)
    assert "the loss is" in first.message


def test_a_broken_structural_check_holds_back_the_outcome_checks(toy: Lab, starter: Files, server: ForkServer) -> None:
    result = grade(toy, starter, server=server)
    assert [one.kind for one in result.checks] == ["behaviour", "invariant", "outcome"]
    assert result.checks[-1].outcome == "not_run"


def test_all_checks_runs_the_outcome_checks_too(toy: Lab, starter: Files, server: ForkServer) -> None:
    result = grade(toy, starter, server=server, all_checks=True)
    assert [one.outcome for one in result.checks] == ["failed", "passed", "failed"]


def test_a_recognised_wrong_fix_is_named(toy: Lab, summed: Files, starter: Files, server: ForkServer) -> None:
    result = grade(toy, summed, server=server)
    assert (result.verdict, result.recognised_wrong_fix) == ("failed", "summed_instead")
    assert result.reason == "The loss is summed over the batch, so it grows with the batch."
    assert grade(toy, starter, server=server).recognised_wrong_fix is None


@pytest.mark.extended
def test_warm_and_cold_grades_are_equal(toy: Lab, solution: Files, starter: Files, server: ForkServer) -> None:
    for files in (solution, starter):
        warm, cold = grade(toy, files, seed=11, server=server), grade(toy, files, seed=11)
        assert warm.without_timing() == cold.without_timing()


def test_a_seed_repeats_a_grade_exactly_and_another_does_not(toy: Lab, solution: Files, server: ForkServer) -> None:
    first, again, other = (grade(toy, solution, seed=seed, server=server) for seed in (5, 5, 6))
    assert first.without_timing() == again.without_timing()
    assert first.checks[0].measured != other.checks[0].measured


@pytest.mark.extended
def test_an_outcome_check_draws_only_from_the_labs_seeds(
    lab_with: Callable[..., Lab], solution: Files, server: ForkServer
) -> None:
    checks = (
        CHECK.replace("behaviour", "outcome")
        + "def test_seed(submission, seed, rng):\n"
        + "    draws = submission.observe('gradients', seed=seed)\n"
        + "    expect([seed, rng.seed()]).equals(None)"
    )
    lab = lab_with(checks, seeds=[41, 42])
    drawn = [grade(lab, solution, seed=seed, server=server).checks[0].measured for seed in range(8)]
    assert {one[0] for one in drawn} == {41, 42}
    assert len({one[1] for one in drawn}) == 2, "rng in an outcome check depends on the lab's seed alone"
    forced = grade(lab, solution, seed=0, outcome_seed=77, server=server)
    assert forced.checks[0].measured[0] == 77


def test_checks_stream_as_they_come(toy: Lab, solution: Files, server: ForkServer) -> None:
    seen: list[str] = []
    result = grade(toy, solution, server=server, on_check=lambda one: seen.append(one.id))
    assert seen == [one.id for one in result.checks]


def test_the_json_has_exactly_the_documented_keys(toy: Lab, starter: Files, server: ForkServer) -> None:
    document = grade(toy, starter, server=server, seed=3).to_json()
    keys = ["id", "slug", "verdict", "reason", "seconds", "seed", "recognised_wrong_fix", "checks"]
    assert list(document) == keys
    assert list(document["checks"][0]) == ["id", "title", "kind", "outcome", "message", "measured", "expected"]
    json.dumps(document, allow_nan=False)


def test_nothing_but_the_caller_writes_to_stdout(
    lab_with: Callable[..., Lab], solution: Files, server: ForkServer, capfd: pytest.CaptureFixture[str]
) -> None:
    noisy = {"policy.py": solution["policy.py"] + "\nprint('from the submission')\n"}
    lab = lab_with(CHECK + f"def test_a(submission, rng):\n    print('from the check')\n    {ASK}")
    result = grade(lab, noisy, server=server)
    assert result.passed
    assert result.output == "from the submission\n"
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("checks", "says"),
    [
        ("", "declares no check"),
        (CHECK + "def test_a(submission): pass", "without calling the submission"),
        (CHECK + f"def test_a(submission, rng):\n    {ASK}\n    pytest.skip('x')", "failed in the grader"),
        (CHECK + "@pytest.mark.xfail\ndef test_a(submission): assert 0", "marked xfail"),
        (CHECK + "@pytest.mark.parametrize('a', [1])\ndef test_a(submission, a): pass", "marked parametrize"),
        (f"def test_a(submission, rng):\n    {ASK}", "no @check"),
        (CHECK + f"def tset_a(submission, rng): pass\n{CHECK}def test_b(submission, rng): {ASK}", "tset_a did not run"),
        (2 * (CHECK + f"def test_a(submission, rng): {ASK}\n"), "two checks named test_a"),
        (CHECK + "def test_a(submission): submission.observe('no_such_probe')", "no probe named no_such_probe"),
        (CHECK + "def test_a(submission): raise TypeError('ours')", "TypeError: ours"),
        (CHECK + "def test_a(nonexistent): pass", "failed in the grader"),
        ("import no_such_module", "could not be collected"),
        ("def broken(:", "could not be collected"),
        (
            "@pytest.fixture\ndef f():\n    yield\n    raise ValueError('late')\n"
            + CHECK
            + f"def test_a(submission, rng, f): {ASK}",
            "ValueError: late",
        ),
    ],
)
def test_a_fault_in_the_checks_is_an_error_and_never_a_pass(
    checks: str, says: str, lab_with: Callable[..., Lab], solution: Files, server: ForkServer
) -> None:
    result = grade(lab_with(checks), solution, server=server)
    assert result.verdict == "error"
    assert says in (result.reason or "")


def test_a_check_that_stumbles_over_what_came_back_is_the_submissions_failure(
    lab_with: Callable[..., Lab], server: ForkServer
) -> None:
    lab = lab_with(CHECK + "def test_a(submission): assert submission.call('f')['loss'].mean() > 0")
    result = grade(lab, {"policy.py": "def f(): return None"}, server=server)
    assert result.verdict == "failed"
    assert "cannot be used" in result.checks[0].message


def test_a_check_cannot_swallow_the_death_of_the_child(lab_with: Callable[..., Lab], server: ForkServer) -> None:
    swallowing = "def test_a(submission):\n    try: submission.call('f')\n    except Exception: pass"
    result = grade(lab_with(CHECK + swallowing), {"policy.py": "import os\ndef f(): os._exit(0)"}, server=server)
    assert (result.verdict, result.checks[0].outcome) == ("failed", "failed")
    assert "exit status 0" in (result.reason or "")


def test_an_authors_edit_of_the_checks_is_seen(lab_with: Callable[..., Lab], solution: Files) -> None:
    body = f"def test_a(submission, rng): {ASK}"
    first = declared_by(lab_with(CHECK + body))
    second = declared_by(lab_with(CHECK.replace('title="t"', 'title="edited"') + body))
    assert [one.title for one in (*first.checks, *second.checks)] == ["t", "edited"]


def test_the_users_pytest_settings_have_no_effect(
    lab_with: Callable[..., Lab], solution: Files, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = lab_with(CHECK + f"def test_a(submission, rng): {ASK}\n" + CHECK + f"def test_b(submission, rng): {ASK}")
    (lab.folder / "conftest.py").write_text("raise SystemExit('conftest ran')")
    (lab.folder / "pytest.ini").write_text("[pytest]\npython_functions = never_*\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k test_a")
    result = grade(lab, solution, server=server)
    assert [one.outcome for one in result.checks] == ["passed", "passed"]


def test_a_missing_extra_is_said_before_anything_starts(toy_with: Callable[..., Lab], solution: Files) -> None:
    with pytest.raises(MissingExtraError, match=r"no_such_package, which is not installed: pip install"):
        grade(toy_with(extras=["no_such_package"]), solution)


@pytest.mark.parametrize(
    ("wish", "stretch"), [(None, 1), ("3", 3), ("1e9", 100), ("0.1", 1), ("-1", 1), ("x", 1), ("nan", 1)]
)
def test_a_wish_stretches_the_time_limits_and_nothing_shortens_them(wish: str | None, stretch: float) -> None:
    assert patience(wish) == stretch


def test_a_grade_without_timing_differs_in_nothing_else(toy: Lab, solution: Files, server: ForkServer) -> None:
    result = grade(toy, solution, server=server)
    assert replace(result, seconds=0.0, output="", evidence=None) == result.without_timing()
