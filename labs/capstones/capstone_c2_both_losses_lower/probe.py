"""Reads the learner's review. Runs in the sandboxed child."""

from __future__ import annotations

import tomllib
from typing import Any

FILES = ("config.yaml", "data.py", "evaluate.py", "model.py", "train.py")
DECISIONS = ("merge", "request_changes")
KINDS = ("units", "padding", "leak", "randomness", "untrained", "gradient", "mode", "state", "device")
MOST = 40


class ReviewError(ValueError):
    """The review cannot be read; the message is one sentence for the learner."""


def review(learner: Any) -> dict[str, Any]:
    """The decision and the marks of `review.toml`. Raises ReviewError."""
    try:
        found = tomllib.loads(learner.review.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ReviewError(f"review.toml is not valid TOML: {error}.") from None
    unknown = sorted(found.keys() - {"decision", "refused"})
    if unknown:
        raise ReviewError(f"review.toml has the key `{unknown[0]}`; it takes `decision` and tables `[[refused]]`.")
    decision = found.get("decision", "")
    if decision not in ("", *DECISIONS):
        raise ReviewError(f"`decision` in review.toml is {decision!r}; it is one of: {', '.join(DECISIONS)}.")
    tables = found.get("refused", [])
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise ReviewError("Each refused place in review.toml is a table of its own, under the line `[[refused]]`.")
    if len(tables) > MOST:
        raise ReviewError(f"review.toml refuses {len(tables)} places; name the few that must change.")
    return {"decision": decision, "marks": [_mark(table, number) for number, table in enumerate(tables, start=1)]}


def symptom(learner: Any) -> None:
    """The review as it is understood."""
    found = review(learner)
    print(f"Decision: {found['decision'] or 'none yet'}. Refused places: {len(found['marks'])}.")
    for mark in found["marks"]:
        print(f"  {mark['file']}, line {mark['line']}: {mark['why']}")
    print("\nBoth versions run. In this folder:")
    print("  cd before && python train.py")
    print("  cp -r before after && patch -d after -p1 < change.diff && cd after && python train.py")


def _mark(table: dict[str, Any], number: int) -> dict[str, Any]:
    where = f"Table {number} of `[[refused]]` in review.toml"
    missing = [name for name in ("file", "line", "why") if name not in table]
    if missing:
        raise ReviewError(f"{where} has no `{missing[0]}`.")
    unknown = sorted(table.keys() - {"file", "line", "why", "says"})
    if unknown:
        raise ReviewError(f"{where} has the key `{unknown[0]}`; it takes `file`, `line`, `why` and `says`.")
    file, line, why = table["file"], table["line"], table["why"]
    if file not in FILES:
        raise ReviewError(f"{where} names the file {file!r}; the change has: {', '.join(FILES)}.")
    if type(line) is not int or line < 1:
        raise ReviewError(f"{where} has the line {line!r}; it is a number of a line of the new file, from 1 on.")
    if why not in KINDS:
        raise ReviewError(f"{where} has the `why` {why!r}; it is one of: {', '.join(KINDS)}.")
    return {"file": file, "line": line, "why": why}
