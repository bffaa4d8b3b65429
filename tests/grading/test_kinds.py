"""A grade of some kinds of checks only: what an author's verification uses to be cheap."""

from __future__ import annotations

from labs.grading import ForkServer, grade
from labs.grading.catalog import Lab

Files = dict[str, str]


def test_only_the_requested_kinds_run_and_decide_the_verdict(
    toy: Lab, solution: Files, starter: Files, server: ForkServer
) -> None:
    structural = grade(toy, solution, server=server, kinds=("behaviour", "invariant"))
    assert [one.kind for one in structural.checks] == ["behaviour", "invariant"]
    assert structural.verdict == "passed"
    only_what_holds = grade(toy, starter, server=server, kinds=("invariant",))
    assert ([one.kind for one in only_what_holds.checks], only_what_holds.verdict) == (["invariant"], "passed")


def test_a_check_gives_the_same_result_whether_others_run_or_not(toy: Lab, starter: Files, server: ForkServer) -> None:
    whole = grade(toy, starter, seed=5, server=server)
    structural = grade(toy, starter, seed=5, server=server, kinds=("behaviour", "invariant"))
    assert structural.checks == whole.checks[:2]
