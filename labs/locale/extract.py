"""Renews the catalogue: adds the texts that are new, and marks as obsolete what `lab` no longer prints.

    python -m labs.locale.extract            write them
    python -m labs.locale.extract --check    only say what is missing, new or obsolete; exit code 1 if anything is

The Korean text of a new entry is written by hand into `ko.po`.
"""

from __future__ import annotations

import sys

import polib

from labs.locale import CATALOGUE, TEMPLATE
from labs.locale.sources import all_texts


def renew(catalogue: polib.POFile) -> tuple[int, int]:
    """Bring the entries up to date; how many are new, and how many became obsolete."""
    wanted: dict[str, tuple[bool, list[str]]] = {}
    for text, is_template, place in all_texts():
        template, places = wanted.setdefault(text, (is_template, []))
        wanted[text] = (template or is_template, [*places, place] if place not in places else places)
    known = {entry.msgid: entry for entry in catalogue}
    gone = [entry for entry in known.values() if entry.msgid not in wanted and not entry.obsolete]
    for entry in gone:
        entry.obsolete = True
    new = 0
    entries = []
    for text, (is_template, places) in wanted.items():
        entry = known.get(text) or polib.POEntry(msgid=text)
        new += text not in known or bool(entry.obsolete)
        entry.obsolete = False
        entry.occurrences = [(place, "") for place in places]
        entry.flags = [flag for flag in entry.flags if flag != TEMPLATE] + [TEMPLATE] * is_template
        entries.append(entry)
    catalogue[:] = entries + [entry for entry in known.values() if entry.obsolete]
    return new, len(gone)


def main() -> int:
    """Renew `ko.po`, or compare it."""
    catalogue = polib.pofile(str(CATALOGUE), wrapwidth=0)
    before = str(catalogue)
    new, gone = renew(catalogue)
    untranslated = [entry for entry in catalogue if not entry.obsolete and (not entry.msgstr or entry.fuzzy)]
    sys.stdout.write(f"{new} new, {gone} obsolete, {len(untranslated)} not translated\n")
    if "--check" in sys.argv:
        return int(bool(new or gone or untranslated or str(catalogue) != before or catalogue.obsolete_entries()))
    catalogue.save(str(CATALOGUE))
    return 0


if __name__ == "__main__":
    sys.exit(main())
