"""Rules are chosen by code or prefix as in ruff, and a typo never passes as silence."""

from __future__ import annotations

import pytest

from debugkit.finding import Certainty, Severity
from debugkit.rule import UnknownCodeError, all_rules, as_json, choose, find_rule, rule


def codes(select: list[str] | None = None, ignore: list[str] | None = None) -> list[str]:
    return [known.code for known in choose(all_rules(), select, ignore)]


def test_everything_is_chosen_by_default() -> None:
    assert codes() == [known.code for known in all_rules()]


def test_prefix_chooses_a_family() -> None:
    assert codes(["DK1"]) == [known.code for known in all_rules() if known.family == "gradients"]
    assert "DK101" not in codes(ignore=["DK1"])


def test_longer_prefix_wins() -> None:
    assert codes(["DK1"], ["DK112"]) == [code for code in codes(["DK1"]) if code != "DK112"]
    assert codes(["DK112"], ["DK1"]) == ["DK112"]


def test_ignoring_what_is_selected_leaves_nothing() -> None:
    assert codes(["DK112"], ["DK112"]) == []


@pytest.mark.parametrize("typo", ["DK999", "E501", "DKX"])
def test_unknown_prefix_is_an_error(typo: str) -> None:
    with pytest.raises(UnknownCodeError, match=typo):
        codes([typo])
    with pytest.raises(UnknownCodeError, match=typo):
        codes(None, [typo])


def test_rule_is_found_by_code_and_by_name() -> None:
    assert find_rule("dk305") is find_rule("batch-leak") is find_rule("batch_leak")
    with pytest.raises(UnknownCodeError, match="debugkit rules"):
        find_rule("DK000")


def test_malformed_and_repeated_codes_are_refused() -> None:
    about = {
        "name": "x",
        "severity": Severity.INFO,
        "certainty": Certainty.PROOF,
        "modes": (),
        "needs": (),
    }
    with pytest.raises(ValueError, match="DK and three digits"):
        rule("DK1", **about)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="declared twice"):
        rule("DK305", **about)(lambda: ())  # type: ignore[arg-type]


def test_json_has_the_documented_keys() -> None:
    document = as_json(all_rules())
    assert document["schema"] == 1
    keys = ["code", "name", "family", "severity", "certainty", "cost", "summary", "modes"]
    assert all(list(entry) == keys for entry in document["rules"])
