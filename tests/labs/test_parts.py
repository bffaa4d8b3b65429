"""Which grades are left out after a change of one check, one recogniser or one wrong fix: change it, and see."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from edited_files import append, rewrite
from labs.authoring import parts
from labs.authoring import verify as verification
from labs.authoring.grading_rules import Graded, judge_checks_can_fail
from labs.authoring.parts import Changes, Parts, parts_of
from labs.authoring.plan import plan
from labs.authoring.verified import RECORD, complete, why_stale, write_verified
from labs.grading import ForkServer, catalog
from labs.grading.catalog import Lab

REFERENCE, ROUND_TRIP, REACHES = "test_equals_the_reference", "test_round_trip", "test_reaches"
WRONG = ("clamp", "drop_the_mean", "tuned_gain")
CORRECT = ("solution", "alternative_addcmul")


def add_wrong_fix(lab: Lab) -> None:
    edit = (lab.folder / "wrong_fixes" / "clamp.diff").read_text()
    (lab.folder / "wrong_fixes" / "wider.diff").write_text(edit.replace("clamp(-1, 1)", "clamp(-2, 2)"))


# A recogniser reads `round_trip`, which any check may have called last: after a change of a check, names may differ.
CHANGED: dict[str, tuple[Callable[[Lab], object], set[str], set[str], bool]] = {
    "a check": (lambda lab: rewrite(lab.folder / "checks.py", "(1, 5)", "(1, 6)"), {REFERENCE}, set(), True),
    "a tolerance of two decimals": (
        lambda lab: rewrite(lab.folder / "checks.py", "rtol=1e-4, atol=1e-5", "rtol=1e-3, atol=1e-5"),
        {ROUND_TRIP},
        set(),
        True,
    ),
    "the probe's function": (
        lambda lab: rewrite(lab.folder / "probe.py", "randn(16, 3", "randn(17, 3"),
        {ROUND_TRIP, REACHES},
        set(),
        True,
    ),
    "what the lesson's run prints": (
        lambda lab: rewrite(lab.folder / "probe.py", '"action     "', '"actions    "'),
        set(),
        set(),
        False,
    ),
    "a new check": (
        lambda lab: append(
            lab.folder / "checks.py",
            '\n\n@check(kind="invariant", title="t", property="p", instrument="i")\n'
            "def test_more(submission):\n    pass\n",
        ),
        {"test_more"},
        set(),
        True,
    ),
    "a recogniser": (lambda lab: rewrite(lab.folder / "checks.py", "< 1e-4)", "< 1e-5)"), set(), set(), True),
    "a new wrong fix": (add_wrong_fix, set(), {"wrong_fixes/wider.diff"}, False),
}
EVERYTHING: dict[str, Callable[[Lab], object]] = {
    "the starter": lambda lab: append(lab.folder / "policy.py", "\nX = 1\n"),
    "the solution": lambda lab: append(lab.solution / "policy.py", "\nX = 1\n"),
    "a wrong fix": lambda lab: rewrite(lab.folder / "wrong_fixes" / "clamp.diff", "clamp(-1, 1)", "clamp(-1, 2)"),
    "the check that refuses it": lambda lab: rewrite(lab.folder / "wrong_fixes" / "clamp.diff", REFERENCE, ROUND_TRIP),
    "a wrong fix less": lambda lab: (lab.folder / "wrong_fixes" / "clamp.diff").unlink(),
    "the seeds": lambda lab: rewrite(lab.folder / "lab.toml", "[1, 2, 3, 4, 5]", "[1, 2, 3, 4, 6]"),
    "a file beside the starter": lambda lab: (lab.folder / "log.txt").write_text("x"),
}


def reread() -> Lab:
    catalog.all_labs.cache_clear()
    return catalog.find("03")


@pytest.mark.parametrize("change", CHANGED)
def test_a_change_asks_for_what_depends_on_it(lab: Lab, change: str) -> None:
    edit, checks, added, names = CHANGED[change]
    write_verified(lab, grades=12, margins={})
    edit(lab)
    stale = why_stale(reread())
    assert stale is not None
    assert stale.changes == Changes(frozenset(checks), frozenset(added), names)
    assert [task.scope for task in plan([reread()], changed=True)] == ["changes"]
    for name in (*checks, *added):
        assert name in stale.sentence


@pytest.mark.parametrize("change", EVERYTHING)
def test_what_every_grade_depends_on_asks_for_all(lab: Lab, change: str) -> None:
    write_verified(lab, grades=12, margins={})
    EVERYTHING[change](lab)
    stale = why_stale(reread())
    assert stale is not None
    assert stale.changes is None
    assert [task.scope for task in plan([reread()], changed=True)] == ["all"]


def test_prose_changes_no_part(lab: Lab) -> None:
    before = parts_of(lab)
    rewrite(lab.folder / "checks.py", 'title="', 'title="In other words: ')
    append(lab.folder / "probe.py", "\n# a comment\n")
    rewrite(lab.folder / "wrong_fixes" / "clamp.diff", "why: ", "why: That ")
    assert parts_of(reread()) == before


def test_a_check_depends_on_the_shared_functions_that_it_uses() -> None:
    lab = catalog.find("42")
    forms = parts._forms(lab, ["test_image_and_instruction_matter"])
    assert "invariants.py" in forms
    assert "expect_image_and_instruction_to_matter" in forms["invariants.py"]
    assert "expect_frames_to_be_independent" not in forms["invariants.py"]


def test_only_what_depends_on_the_change_is_graded(lab: Lab, asked: Callable[..., dict[str, Counter[str]]]) -> None:
    def grades(change: str) -> dict[str, dict[str, int]]:
        edit, *_ = CHANGED[change]
        write_verified(lab, grades=12, margins={})
        edit(lab)
        return {name: dict(count) for name, count in asked(reread(), scope="changes", full=True).items()}

    always = {name: {"structural": 5} for name in ("starter", *CORRECT)} | {"stub": {"whole": 1}}
    every = {name: {"structural": 5} for name in WRONG}
    assert grades("a new wrong fix") == always | {"wider": {"structural": 5}}
    assert grades("a check") == always | every | {"wider": {"structural": 5}}
    assert grades("a recogniser") == always | {name: {"structural": 2} for name in (*WRONG, "wider")}
    trained = {name: {"whole": 5} for name in CORRECT}
    assert grades("the probe's function") == always | trained | {name: {"structural": 2} for name in (*WRONG, "wider")}


def test_the_record_says_when_everything_was_graded(lab: Lab) -> None:
    def record() -> dict[str, object]:
        return dict(json.loads((lab.solution / RECORD).read_text()))

    write_verified(lab, grades=12, margins={"test_reaches": 4.5})
    old = record() | {"date": "2026-01-02"}
    (lab.solution / RECORD).write_text(json.dumps(old))
    for _ in range(2):
        append(lab.folder / "checks.py", "\nX = 1\n")
        stale = why_stale(lab)
        assert stale is not None
        write_verified(lab, grades=7, margins={}, before=stale.record)
        assert (record()["whole"], record()["margins"], record()["grades"]) == ("2026-01-02", {"test_reaches": 4.5}, 7)
        assert record()["date"] != "2026-01-02"
        assert why_stale(lab) is None


def test_a_record_without_parts_is_completed_while_it_holds(lab: Lab) -> None:
    write_verified(lab, grades=12, margins={})
    whole = json.loads((lab.solution / RECORD).read_text())
    (lab.solution / RECORD).write_text(json.dumps({name: value for name, value in whole.items() if name != "parts"}))
    complete(lab)
    assert json.loads((lab.solution / RECORD).read_text()) == whole
    old = {name: value for name, value in whole.items() if name != "parts"}
    (lab.solution / RECORD).write_text(json.dumps(old))
    append(lab.folder / "checks.py", "\nX = 1\n")
    complete(lab)
    assert json.loads((lab.solution / RECORD).read_text()) == old
    stale = why_stale(lab)
    assert stale is not None
    assert stale.changes is None


def test_a_changed_check_must_still_refuse_something(lab: Lab) -> None:
    with ForkServer() as server:
        write_verified(lab, grades=12, margins={})
        append(
            lab.folder / "checks.py",
            '\n\n@check(kind="behaviour", title="t", property="p", instrument="i")\n'
            'def test_shape(submission, rng):\n    there = submission.observe("round_trip", seed=1)\n'
            '    expect(there["after"], "the actions").has_shape(16, 3)\n',
        )
        result = verification.verify(reread(), server, scope="changes")
    assert [one.rule for one in result.violations] == ["checks can fail"]
    assert result.violations[0].sentence.startswith("test_shape refuses neither")


def test_checks_that_are_known_to_refuse_are_not_judged_again() -> None:
    from labs.grading.declarations import Check, Declared

    checks = tuple(Check(name, "behaviour", "t", "p", "i", "m") for name in ("one", "two"))
    nothing = [Graded("the starter", ())]
    found = [one.sentence for one in judge_checks_can_fail(Declared(checks, ()), nothing, {"one"})]
    assert [sentence.partition(" ")[0] for sentence in found] == ["two"]


def test_parts_are_read_as_they_are_written() -> None:
    given = Parts({"a": "1"}, "2", {"the starter": "3"}, "4")
    assert msgspec.json.decode(msgspec.json.encode(given), type=Parts) == given
