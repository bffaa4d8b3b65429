"""The Korean catalogue: complete, up to date, and true to its English sentences."""

from __future__ import annotations

import re

import polib
import pytest

from labs.locale import CATALOGUE, TEMPLATE, pattern_of, placeholders_of
from labs.locale.extract import renew


@pytest.fixture(scope="module")
def catalogue() -> polib.POFile:
    return polib.pofile(str(CATALOGUE), wrapwidth=0)


def test_nothing_is_missing_new_or_obsolete(catalogue: polib.POFile) -> None:
    fresh = polib.pofile(str(CATALOGUE), wrapwidth=0)
    assert renew(fresh) == (0, 0), "run python -m labs.locale.extract"
    assert str(fresh) == str(catalogue), "run python -m labs.locale.extract"
    assert catalogue.obsolete_entries() == []
    assert [entry.msgid for entry in catalogue if entry.fuzzy or not entry.msgstr] == []


def test_templates_keep_their_placeholders(catalogue: polib.POFile) -> None:
    templates = [entry for entry in catalogue if TEMPLATE in entry.flags]
    assert len(templates) > 100
    for entry in templates:
        assert set(placeholders_of(entry.msgid)) == set(placeholders_of(entry.msgstr)), entry.msgid


def test_code_stays_as_it_is(catalogue: polib.POFile) -> None:
    for entry in catalogue:
        english, korean = (set(re.findall(r"`([^`\n]+)`", text)) for text in (entry.msgid, entry.msgstr))
        assert english <= korean, entry.msgid


def test_a_template_matches_what_it_makes(catalogue: polib.POFile) -> None:
    for entry in catalogue:
        if TEMPLATE in entry.flags:
            values = {name: f"<{name}>" for name in placeholders_of(entry.msgid)}
            assert pattern_of(entry.msgid).fullmatch(entry.msgid.format(**values)), entry.msgid
