"""`--lang` and `--pack` are taken out of a command line before typer reads it."""

from __future__ import annotations

import os

import pytest

from labs.cli.pack_option import use_pack
from labs.cli.take_option import take_option


@pytest.mark.parametrize(
    ("arguments", "value", "rest"),
    [
        ("list --done", None, "list --done"),
        ("--pack arms list", "arms", "list"),
        ("list --pack=arms --done", "arms", "list --done"),
        ("--pack a list --pack b", "b", "list"),
        ("--pack a list --pack", "", "list"),
        ("list --pack=", "", "list"),
        ("--pack -- list", "--", "list"),
        ("show -- --pack arms", None, "show -- --pack arms"),
        ("--pack a show -- --pack b --", "a", "show -- --pack b --"),
        ("list --packs arms", None, "list --packs arms"),
    ],
)
def test_an_option_is_taken_out_with_its_last_value(arguments: str, value: str | None, rest: str) -> None:
    assert take_option("--pack", arguments.split()) == (value, rest.split())


def test_a_pack_that_is_named_after_two_dashes_is_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_PACK", raising=False)
    assert use_pack(["open", "--", "--pack"]) == (["open", "--", "--pack"], "")
    assert "LAB_PACK" not in os.environ
