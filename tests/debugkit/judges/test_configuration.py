"""Judges of configurations, on made-up compositions, reads, values and folders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debugkit.declare import Declare
from debugkit.finding import Finding, NotExamined
from debugkit.measurements.config_composition import Chooser, ConfigComposition, ConfigLeaf, Setting, reads_as
from debugkit.rule import Context, find_rule
from debugkit.rules.dk902_config_key_never_read import ConfigReads
from debugkit.rules.dk903_config_type import ConfigValue, ConfigValues
from debugkit.rules.dk904_output_directories_split import OutputDirectories, OutputPlace

CHOOSERS: tuple[Chooser, ...] = ("a defaults list", "the main config", "the command line")
RUN = "/runs/2026-03-01/12-00-00"


RULES = {code: find_rule(code) for code in ("DK901", "DK902", "DK903", "DK904")}  # read here: hypothesis times a test


def judged(code: str, *observations: object) -> list[Finding]:
    rule = RULES[code]
    return list(rule.judge(*observations, Context(rule, Declare(), "config")))


# Who wins


def composed(*settings: Setting) -> ConfigComposition:
    return ConfigComposition("config", (), (ConfigLeaf("train.batch_size", settings),))


@given(st.lists(st.sampled_from(CHOOSERS), min_size=1, max_size=5))
def test_it_speaks_only_where_a_less_explicit_choice_wins(choosers: list[Chooser]) -> None:
    settings = [Setting(number, f"config{number}", chooser) for number, chooser in enumerate(choosers)]
    wronged = any(setting.explicitness > settings[-1].explicitness for setting in settings)
    assert bool(judged("DK901", composed(*settings))) == wronged


@pytest.mark.parametrize(
    ("lost", "won", "severity"),
    [
        ("the command line", "a defaults list", "error"),
        ("the command line", "the main config", "info"),
        ("the main config", "a defaults list", "warning"),
    ],
)
def test_how_bad_it_is_depends_on_who_lost_to_whom(lost: Chooser, won: Chooser, severity: str) -> None:
    [finding] = judged("DK901", composed(Setting(64, "chosen", lost), Setting(16, "later", won)))
    assert str(finding.severity) == severity
    assert (finding.evidence["stands"], finding.evidence["keys"]) == (16, ["train.batch_size"])


@pytest.mark.parametrize("value", [None, "???", 16])
def test_placeholders_and_equal_values_are_not_wronged(value: object) -> None:
    assert not judged(
        "DK901", composed(Setting(value, "config", "the main config"), Setting(16, "a", "a defaults list"))
    )


def test_an_optional_overlay_may_win() -> None:
    overlay = Setting(16, "local", "a defaults list", optional=True)
    assert not judged("DK901", composed(Setting(64, "config", "the main config"), overlay))


def test_one_misplaced_line_is_one_finding_however_many_values_it_costs() -> None:
    settings = (Setting(64, "config", "the main config"), Setting(16, "base", "a defaults list"))
    leaves = tuple(ConfigLeaf(f"train.value{number}", settings) for number in range(6))
    [finding] = judged("DK901", ConfigComposition("config", (), leaves))
    assert finding.message.startswith("6 values (`train.value0=64`, `train.value1=64`, `train.value2=64` and 3 more)")


# Who reads

KEYS = st.lists(st.sampled_from(["a", "b", "c.a", "c.b", "d.e.f", "d.e.g"]), unique=True, min_size=1)


@given(leaves=KEYS, read=KEYS)
def test_every_unread_leaf_is_in_exactly_one_finding(leaves: list[str], read: list[str]) -> None:
    findings = judged("DK902", ConfigReads(tuple(leaves), frozenset(read), ("x.b",), converted=False), None)
    told = [key for finding in findings for key in finding.evidence.get("keys", [finding.evidence.get("key")])]  # type: ignore[attr-defined]
    assert sorted(told) == sorted(set(leaves) - set(read))


@pytest.mark.parametrize(("converted", "why"), [(True, "converted to plain data"), (False, "has not been read yet")])
def test_where_nothing_was_read_nothing_can_be_said(converted: bool, why: str) -> None:
    with pytest.raises(NotExamined, match=why):
        judged("DK902", ConfigReads(("a",), frozenset(), (), converted), None)


# What it is


@pytest.mark.parametrize(
    ("key", "value", "elsewhere", "severity"),
    [
        ("lr", "1e-4", (), "warning"),
        ("lr", "1e-4", ("float",), "error"),
        ("lr", "1e-4", ("str",), "warning"),
        ("steps", "100", (), "info"),
        ("steps", "100", ("int",), "error"),
        ("version", "1.3", (), None),
        ("episode", "007", (), None),
        ("checkpoint", "None", (), "warning"),
        ("checkpoint", "null", (), None),
        ("compile", "False", (), "warning"),
        ("mode", "off", (), None),
        ("schedule", "cosine", (), None),
        ("schedule", "inf", (), None),
    ],
)
def test_text_that_is_something_else(key: str, value: str, elsewhere: tuple[str, ...], severity: str | None) -> None:
    found = judged("DK903", ConfigValues((ConfigValue(key, value, elsewhere),), (), 1))
    assert [str(finding.severity) for finding in found] == ([severity] if severity else [])


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_every_number_reads_as_a_number(number: float) -> None:
    assert reads_as(str(number)) == "a number"


# Where it goes


def kept(path: str, declared: bool = True) -> OutputDirectories:
    resolved = path if path.startswith("/") else f"/home/{path}"
    return OutputDirectories(RUN, "/home", False, (OutputPlace("checkpoints", path, resolved, declared),))


@pytest.mark.parametrize(
    ("path", "declared", "severity"),
    [
        (RUN, True, None),
        (f"{RUN}/checkpoints", True, None),
        (f"{RUN}-other/checkpoints", True, "warning"),
        ("/scratch/12-00-00/weights", True, None),
        ("/scratch/2026-03-01/weights", True, "warning"),  # the day is not the run
        ("/runs", True, "warning"),
        ("/runs", False, None),
        ("/scratch", False, "info"),
        ("checkpoints", True, "warning"),
        ("checkpoints/12-00-00", True, "warning"),  # of this run, and still relative to the current folder
    ],
)
def test_what_belongs_to_a_run(path: str, declared: bool, severity: str | None) -> None:
    assert [str(finding.severity) for finding in judged("DK904", kept(path, declared))] == (
        [severity] if severity else []
    )
