"""Consequences are put under their first cause, and nothing is lost or reported twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debugkit import root_cause
from debugkit.declare import Declare
from debugkit.finding import Certainty, Finding, Severity
from debugkit.root_cause import fold
from debugkit.rule import Context, Rule


def a_rule(code: str, *causes: str) -> Rule:
    return Rule(code, f"name-{code}", Severity.ERROR, Certainty.PROOF, ("check",), (), (), causes, lambda: (), "page")


RULES = {
    "DK105": a_rule("DK105"),
    "DK107": a_rule("DK107", "DK105"),
    "DK206": a_rule("DK206", "DK107"),
    "DK508": a_rule("DK508", "DK105", "DK107"),
    "DK901": a_rule("DK901"),
}


@pytest.fixture(autouse=True)
def _table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_cause, "find_rule", RULES.__getitem__)


def found(code: str, **where: object) -> Finding:
    return Context(RULES[code], Declare()).finding(f"{code}.", fix="fix it.", **where)  # type: ignore[arg-type]


def folded(*findings: Finding) -> list[tuple[str, str | None]]:
    return [(finding.code, finding.caused_by) for finding in fold(findings)]


def test_consequence_within_the_reach_of_its_cause_is_folded() -> None:
    cut = found("DK105", module="projector", affects=("vision",))
    assert folded(found("DK107", module="vision.layer.0"), cut) == [("DK105", None), ("DK107", "DK105")]


def test_consequence_elsewhere_stands_alone() -> None:
    cut = found("DK105", module="projector", affects=("vision",))
    assert ("DK107", None) in folded(cut, found("DK107", module="head"))


def test_module_whose_name_only_begins_alike_is_elsewhere() -> None:
    assert ("DK107", None) in folded(found("DK105", module="vision"), found("DK107", module="vision2"))


def test_finding_about_the_whole_is_folded_under_any_cause() -> None:
    assert folded(found("DK508"), found("DK105", module="vision")) == [("DK105", None), ("DK508", "DK105")]


def test_chain_ends_at_the_first_cause() -> None:
    chain = folded(found("DK206", module="v.a"), found("DK107", module="v.a"), found("DK105", module="v"))
    assert chain == [("DK105", None), ("DK107", "DK105"), ("DK206", "DK105")]


def test_later_step_does_not_explain_an_earlier_one() -> None:
    assert ("DK107", None) in folded(found("DK105", step=9), found("DK107", step=3))


def test_unrelated_rules_stand_side_by_side_worst_first() -> None:
    assert folded(found("DK901", severity=Severity.INFO), found("DK508")) == [("DK508", None), ("DK901", None)]


modules = st.sampled_from([None, "", "vision", "vision.layer", "head"])
findings = st.builds(
    lambda code, module, severity: found(code, module=module, severity=severity),
    st.sampled_from(sorted(RULES)),
    modules,
    st.sampled_from(list(Severity)),
)


@given(st.lists(findings, max_size=8))
def test_folding_loses_nothing_and_every_consequence_follows_its_cause(some: list[Finding]) -> None:
    result = fold(some)
    assert sorted(f.code for f in result) == sorted(f.code for f in some)
    for index, finding in enumerate(result):
        if finding.caused_by is not None:
            roots = [other for other in result[:index] if other.caused_by is None]
            assert roots[-1].code == finding.caused_by
    roots = [f for f in result if f.caused_by is None]
    assert roots == sorted(roots, key=lambda f: (f.severity.rank, f.code))
